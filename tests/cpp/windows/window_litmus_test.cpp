// SPDX-License-Identifier: BSD-3-Clause
// What docs/windows.md says of order, raced for many rounds on every route. The numbers count
// rounds, so that what is read says when it was written.
#include <gtest/gtest.h>

#include "platform/shareable.h"
#include "runtime/thread_group.h"
#include "transports/shm/litmus.h"
#include "windows/window_conformance.h"

namespace altorch {
namespace {

using conformance::Allocate;
using shm::litmus::Race;
using shm::litmus::stumble;
using Numbers = conformance::Opened<std::int64_t>;

struct Way {
  const char* name;
  bool shares;
  Allocate allocate;
};

std::vector<Way> ways() {
  const Allocate plain = [](std::size_t bytes) {
    return std::shared_ptr<std::byte>(new std::byte[bytes], std::default_delete<std::byte[]>());
  };
  return {{"mapped", true, allocate_shareable}, {"copied", true, plain}, {"messages", false, plain}};
}

// `body(race, numbers, round)` on every rank, again and again; it has to keep the ranks in step. It
// counts for `races` rounds.
template <class Body>
void race_on(int size, std::size_t count, Body body, std::uint64_t races = 1) {
  for (const Way& way : ways()) {
    if (!way.shares) setenv("ALTORCH_SHM_BYTES", "0", 1);
    ThreadGroup group(size);
    Race race;
    const auto errors = group.run([&](int rank, Communicator& communicator) {
      try {
        const Numbers numbers(communicator, way.allocate, DType::kInt64, count);
        numbers.barrier();
        // Rank 0 says whether there is another round: the ranks end together.
        for (std::int64_t round = 1;; ++round) {
          if (rank == 0) {
            const std::int64_t goes_on =
                race.goes_on(static_cast<std::uint64_t>(round - 1) * races + 1) ? 1 : 0;
            for (int peer = 0; peer < size; ++peer) numbers.put(peer, count - 1, {goes_on}, 7);
          }
          numbers.wait(0, 7);
          if (numbers.values[count - 1] == 0) break;
          body(race, numbers, round);
        }
        numbers.close();
      } catch (const std::runtime_error& error) {
        race.stop();
        communicator.close(error.what());
        throw Error(ErrorKind::kInternal, error.what());
      }
    });
    unsetenv("ALTORCH_SHM_BYTES");
    for (const std::string& error : errors) EXPECT_EQ(error, "") << way.name;
  }
}

std::int64_t read(const Numbers& numbers, int peer, std::size_t place = 0) {
  return numbers.fetch_add(peer, place, 0);
}

// What rank 0 has put at rank 2 is there when rank 2 hears of it from rank 1.
TEST(WindowLitmus, MessagePassing) {
  race_on(3, 41, [](Race& race, const Numbers& numbers, std::int64_t round) {
    const auto number = static_cast<std::uint64_t>(round);
    if (numbers.rank() == 0) {
      numbers.put(2, 0, std::vector<std::int64_t>(40, round));
      stumble(number, 0);
      numbers.signal(1, 0);
      numbers.wait(2, 0);
    } else if (numbers.rank() == 1) {
      numbers.wait(0, 0);
      stumble(number, 1);
      numbers.signal(2, 0);
    } else {
      numbers.wait(1, 0);
      for (std::size_t at = 0; at < 40; ++at)
        race.expect(numbers.values[at] == round, "data came late", number);
      numbers.signal(0, 0);
    }
  });
}

// Of two ranks that count and then look at the other's counter one sees the other.
TEST(WindowLitmus, StoreBuffering) {
  race_on(2, 3, [](Race& race, const Numbers& numbers, std::int64_t round) {
    const auto number = static_cast<std::uint64_t>(round);
    const int own = numbers.rank(), other = 1 - own;
    stumble(number, static_cast<std::uint64_t>(own));
    numbers.fetch_add(own, 0, 1);
    const std::int64_t saw = read(numbers, other);
    if (own == 0) {
      numbers.put(1, 1, {saw}, 0);
      numbers.wait(1, 1);
    } else {
      numbers.wait(0, 0);
      race.expect(saw >= round || numbers.values[1] >= round, "neither has seen the other", number);
      numbers.signal(0, 1);
    }
  });
}

// Two counters are seen to rise in one order by all: many pairs of them, one after another, between
// two barriers.
TEST(WindowLitmus, IndependentReads) {
  constexpr std::size_t kPairs = 32;
  const auto body = [](Race& race, const Numbers& numbers, std::int64_t round) {
    const auto first = static_cast<std::uint64_t>(round - 1) * kPairs + 1;
    const int rank = numbers.rank();
    std::vector<std::int64_t> seen;
    for (std::size_t place = 0; place < kPairs; ++place) {
      stumble(first + place, static_cast<std::uint64_t>(rank));
      if (rank < 2) {
        numbers.fetch_add(rank, place, 1);
      } else {
        for (const int counter : {rank - 2, 3 - rank}) seen.push_back(read(numbers, counter, place));
      }
    }
    if (rank == 2) numbers.put(3, 0, seen, 0);
    if (rank < 3) return numbers.wait(3, 1);
    numbers.wait(2, 0);
    for (std::size_t at = 0; at < seen.size(); at += 2) {
      const bool parted = seen[at] >= round && seen[at + 1] < round && numbers.values[at] >= round &&
                          numbers.values[at + 1] < round;
      race.expect(!parted, "two ranks saw two orders", first + at / 2);
    }
    for (int peer = 0; peer < 3; ++peer) numbers.signal(peer, 1);
  };
  race_on(4, 2 * kPairs + 1, body, kPairs);
}

}  // namespace
}  // namespace altorch
