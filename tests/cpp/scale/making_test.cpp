// SPDX-License-Identifier: BSD-3-Clause
// What the making of a group costs the store.
#include <gtest/gtest.h>

#include <algorithm>

#include "rendezvous/agreement.h"
#include "rendezvous/first_allgather.h"
#include "rendezvous/store_allgather.h"
#include "rendezvous/store_view.h"
#include "simulate/start_up.h"
#include "support/on_threads.h"
#include "support/says.h"
#include "support/simulated_store.h"

namespace altorch {
namespace {

using std::chrono::seconds;

// Most ranks need not read what they get, which thousands do for a while.
class Unread : public StoreView {
 public:
  Unread(KeyValueStore& store, bool reads) : StoreView(store), reads_(reads) {}
  struct Met {};
  std::optional<std::string> try_get(const std::string& key) override {
    auto value = StoreView::try_get(key);
    if (value && key.ends_with("/table") && !reads_) throw Met();
    return value;
  }

 private:
  const bool reads_;
};

template <typename Allgather>
void without_words(Allgather&& allgather) {
  try {
    allgather();
  } catch (const Unread::Met&) {
  }
}

Fields word_of(int rank) {
  Fields word = settings_to_agree_on();
  word.push_back("0123456789abcdef-host/pid:[" + std::to_string(4026531836 + rank / 8) + "]");
  word.push_back(std::to_string(100000 + rank % 8));
  return word;
}

std::vector<std::string> make_group(SimulatedTime& time, SimulatedStore& store, seconds timeout,
                                    int late = -1, seconds by = seconds(0)) {
  const int size = time.ranks();
  return time.run([&](int rank) {
    if (rank == late) {
      if (by > timeout) return;
      WaitClock::sleep_for(by);
    }
    Unread unread(store, rank < 4);
    without_words([&] {
      const FirstAllgather met =
          first_allgather(unread, "g", rank, size, timeout, "to make group 'g'", word_of(rank));
      EXPECT_EQ(met.infos.back(), word_of(size - 1));
    });
    for (const char* key : {"nodes", "shared"}) {
      without_words([&] {
        store_allgather(unread, key, rank, size, timeout, "to make group 'g'", std::to_string(rank));
      });
    }
  });
}

TEST(ScaleOfMaking, AFixedNumberOfRequestsForEachRank) {
  for (const int size : scales()) {
    SimulatedTime time(size);
    SimulatedStore store(time);
    EXPECT_EQ(make_group(time, store, seconds(300)), all_good(size));
    store.tell("making");
    // A challenge and an answer, twice a word, three times a count and a table; some more looks at
    // the challenge.
    for (int rank = 1; rank < size; ++rank) EXPECT_LE(store.of(rank).writes + store.of(rank).reads, 12);
    EXPECT_LE(store.of(0).writes, 10);
    EXPECT_LE(store.in_all().requests(), 60 * size);
    // Every rank gets the words of all ranks, those that are alike once.
    EXPECT_LE(store.in_all().bytes, 200LL * size * size + 20000LL * size);
    // `altorch simulate` says as much of groups of some size.
    if (size < 64) continue;
    const StartUp simulated = simulated_start_up({.nodes = size});
    EXPECT_NEAR(simulated.requests, store.in_all().requests(), 0.15 * simulated.requests);
    EXPECT_NEAR(simulated.bytes, static_cast<double>(store.in_all().bytes), 0.5 * simulated.bytes);
  }
}

// While the pauses grow, in each of three waits; then four a second, or one in so many milliseconds
// as there are ranks.
constexpr int kFirstLooks = 90;
int later_looks(seconds waited, int size) {
  return static_cast<int>(waited.count() * 1000) / std::max(250, size);
}

TEST(ScaleOfMaking, WhoWaitsForALateRankAsksNowAndThen) {
  for (const int size : scales()) {
    SimulatedTime time(size);
    SimulatedStore store(time);
    EXPECT_EQ(make_group(time, store, seconds(300), size - 1, seconds(20)), all_good(size));
    store.tell("waiting for 20 seconds");
    EXPECT_LE(store.most(), 12 + 3 * kFirstLooks + 2 * later_looks(seconds(20), size));
  }
}

TEST(ScaleOfMaking, OneLooksWhoIsAbsentAndTellsTheOthers) {
  for (const int size : scales()) {
    SimulatedTime time(size);
    SimulatedStore store(time);
    const auto errors = make_group(time, store, seconds(20), size - 1, seconds(1000));
    store.tell("waiting in vain for 20 seconds");
    for (int rank = 0; rank < size - 1; ++rank) {
      const std::string& error = errors[static_cast<std::size_t>(rank)];
      EXPECT_TRUE(says(error, "rank " + std::to_string(size - 1) + " has not come to make group")) << error;
    }
    EXPECT_LE(store.in_all().requests(), (12 + 2 * kFirstLooks + 2 * later_looks(seconds(20), size)) * size);
  }
}

}  // namespace
}  // namespace altorch
