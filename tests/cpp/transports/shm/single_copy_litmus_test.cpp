// SPDX-License-Identifier: BSD-3-Clause
// Memory that peers copy from: it may change as soon as its owner is through, or has aborted.
// No peer that succeeds then has seen it change.
#include <gtest/gtest.h>

#include <algorithm>
#include <barrier>
#include <chrono>
#include <thread>
#include <vector>

#include "transports/shm/channel.h"
#include "transports/shm/litmus.h"
#include "transports/shm/shm_ranks.h"

namespace altorch::shm {
namespace {

using litmus::draw;
using litmus::stamp;
using Words = std::vector<std::uint64_t>;

constexpr std::size_t kArea = 256 << 10;  // so large that nothing but the copies asks for steps
constexpr std::uint64_t kChanged = ~std::uint64_t{0};
constexpr std::int64_t kBlock = (32 << 10) / 8;  // the smallest that is read where it is

bool is_all(const std::uint64_t* words, std::size_t count, std::uint64_t value) {
  return std::all_of(words, words + count, [value](std::uint64_t word) { return word == value; });
}

// An all_to_all of this rank's `input` in round `round`, to be tested.
struct Exchange {
  Exchange(ShmCollectives& of, Words& input, int size, std::uint64_t round)
      : own(of), output(input.size()), ranks(size) {
    Call call{OpKind::kAllToAll, DType::kInt64, ReduceOp::kSum, 0, input.data(), output.data()};
    call.count = kBlock;
    own.start(call, round, {}, request);
  }
  State test() { return own.test(request, error); }
  bool is_right(std::uint64_t round) const {
    for (int peer = 0; peer < ranks; ++peer) {
      if (!is_all(&output[static_cast<std::size_t>(peer * kBlock)], kBlock, stamp(peer, round, 0)))
        return false;
    }
    return !error;
  }

  ShmCollectives& own;
  Words output;
  const int ranks;
  Request request;
  std::optional<Error> error;
};

Words input_of(int rank, int size, std::uint64_t round) {
  return Words(static_cast<std::size_t>(size * kBlock), stamp(rank, round, 0));
}

TEST(ShmLitmus, ATensorMayChangeWhenItsCallIsDone) {
  if (const auto why = Process::own().unsupported_reason()) GTEST_SKIP() << *why;
  for (const int size : {2, 4}) {
    litmus::Race race;
    std::atomic<std::uint64_t> last = ~std::uint64_t{0};
    const auto memory = plain_memory(Segment::bytes(size, kArea));
    const auto errors = on_threads(size, [&](int rank) {
      ShmCollectives own(Segment(memory, rank, size, kArea), processes_of(size, true));
      // Rank 0 says which round is the last before any rank can end this one.
      for (std::uint64_t round = 1; round <= last.load(std::memory_order_relaxed); ++round) {
        if (rank == 0 && !race.goes_on(round + 1)) last.store(round, std::memory_order_relaxed);
        Words input = input_of(rank, size, round);
        Exchange exchange(own, input, size, round);
        race.until([&] { return exchange.test() != State::kPending; });
        std::fill(input.begin(), input.end(), kChanged);
        race.expect(exchange.is_right(round), "a block is of another time", round);
      }
    });
    EXPECT_EQ(errors, all_good(size));
  }
}

// Who aborts has ended the call for the others too, or has ended it no sooner than they could.
TEST(ShmLitmus, ATensorMayChangeWhenItsCallIsAborted) {
  if (const auto why = Process::own().unsupported_reason()) GTEST_SKIP() << *why;
  constexpr int kSize = 3;
  litmus::Race race;
  std::shared_ptr<std::byte> memory;
  std::atomic<int> aborted = 0;
  std::atomic<bool> more = true;
  std::uint64_t round = 0;
  const auto begin = [&]() noexcept {
    memory = plain_memory(Segment::bytes(kSize, kArea));
    aborted = 0;
    more = race.goes_on(++round);
  };
  std::barrier fresh(kSize, begin);
  struct Leaves {  // so that no rank waits for a rank that has seen something wrong
    decltype(fresh)& from;
    ~Leaves() { from.arrive_and_drop(); }
  };
  const auto errors = on_threads(kSize, [&](int rank) {
    const Leaves leaves{fresh};
    const auto processes = processes_of(kSize, true);
    for (fresh.arrive_and_wait(); more; fresh.arrive_and_wait()) {
      ShmCollectives own(Segment(memory, rank, kSize, kArea), processes);
      Words input = input_of(rank, kSize, round);
      Exchange exchange(own, input, kSize, round);
      State state = State::kPending;
      std::uint64_t timeout = rank == 0 ? draw(round, 1) % 64 : ~std::uint64_t{0};
      race.until([&] {
        if (aborted > 0 && timeout > 100) timeout = 100;
        state = exchange.test();
        return state != State::kPending || timeout-- == 0;
      });
      own.cancel(exchange.request);
      std::fill(input.begin(), input.end(), kChanged);
      ++aborted;
      race.expect(state == State::kPending || exchange.is_right(round), "a block is of another time", round);
    }
  });
  EXPECT_EQ(errors, all_good(kSize));
}

TEST(ShmLitmus, AMessageMayChangeWhenItIsWithdrawn) {
  if (const auto why = Process::own().unsupported_reason()) GTEST_SKIP() << *why;
  // Copied in two goes.
  constexpr std::size_t kRing = 1 << 10, kWords = (4 << 20) / 8 + 64;
  litmus::Race race;
  std::atomic<std::uint64_t> begun = 0;
  const auto memory = plain_memory(Mail::bytes(2, kRing));
  const auto errors = on_threads(2, [&](int rank) {
    ShmChannel channel(memory, Mail(memory.get(), rank, 2, kRing), processes_of(2, true));
    Words words(kWords);
    bool more = true;
    for (std::uint64_t round = 1; more; ++round) {
      const auto tag = static_cast<std::int64_t>(2 * round);
      Request large, small;
      std::optional<Error> error, withdrawn;
      if (rank == 0) {
        words.assign(kWords, stamp(0, round, 0));
        channel.send(words.data(), kWords * 8, 1, tag, large);
        // Before it is copied, or between the two goes.
        const auto end = std::chrono::steady_clock::now() + std::chrono::microseconds(draw(round, 1) % 2000);
        race.until([&] {
          return channel.test({&large, 1}, error) == State::kDone || std::chrono::steady_clock::now() > end ||
                 begun.load(std::memory_order_relaxed) == round;
        });
        channel.cancel({&large, 1});
        std::fill(words.rbegin(), words.rend(), kChanged);
        more = race.goes_on(round + 1);
        channel.send(&more, sizeof more, 1, tag + 1, small);
        race.until([&] { return channel.test({&small, 1}, error) == State::kDone; });
      } else {
        channel.receive(words.data(), kWords * 8, 0, tag, large);
        channel.receive(&more, sizeof more, 0, tag + 1, small);
        State state = State::kPending;
        race.until([&] {
          if (state == State::kPending) state = channel.test({&large, 1}, withdrawn);
          if (words[0] == stamp(0, round, 0)) begun.store(round, std::memory_order_relaxed);
          std::this_thread::yield();
          return channel.test({&small, 1}, error) == State::kDone;
        });
        // What was begun comes to its end.
        for (int i = 0; i < 3 && state == State::kPending; ++i) state = channel.test({&large, 1}, withdrawn);
        const bool right = is_all(words.data(), kWords, stamp(0, round, 0));
        race.expect(state != State::kDone || right, "a message is of another time", round);
        channel.cancel({&large, 1});
      }
    }
  });
  EXPECT_EQ(errors, all_good(2));
}

}  // namespace
}  // namespace altorch::shm
