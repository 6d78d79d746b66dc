// SPDX-License-Identifier: BSD-3-Clause
// What it costs the store to find out who is left.
#include "rendezvous/survivors.h"

#include <gtest/gtest.h>

#include "support/on_threads.h"
#include "support/simulated_store.h"

namespace altorch {
namespace {

using std::chrono::seconds;

// Some are dead, which the others know after a second; as many live, and do not come.
std::vector<std::string> query_of(SimulatedTime& time, SimulatedStore& store,
                                  const std::function<bool(int)>& is_dead,
                                  const std::function<bool(int)>& is_silent) {
  const int size = time.ranks();
  const auto began = time.now();
  return time.run([&](int rank) {
    if (is_dead(rank) || is_silent(rank)) return;
    SurvivorQuery query;
    query.key = "survivors";
    query.rank = rank;
    query.size = size;
    query.timeout = seconds(10);
    query.is_dead = [&](int who) { return WaitClock::now() - began > seconds(1) && is_dead(who); };
    const Survivors left = find_survivors(store, query);
    for (const int who : left.ranks) {
      if (is_dead(who) || is_silent(who)) ADD_FAILURE() << who;
    }
    EXPECT_TRUE(all_succeeded(store, query, left, true));
  });
}

TEST(ScaleOfSurvivors, AFixedNumberOfRequestsForEachRank) {
  for (const int size : scales()) {
    SimulatedTime time(size);
    SimulatedStore store(time);
    const auto is_dead = [](int rank) { return rank % 16 == 0; };  // the first one of every node
    EXPECT_EQ(query_of(time, store, is_dead, [](int) { return false; }), all_good(size));
    store.tell("survivors");
    EXPECT_LE(store.in_all().requests(), (5 + 3 * 80) * size);
    for (int rank = 2; rank < size; ++rank)
      EXPECT_LE(store.of(rank).writes + store.of(rank).reads, 5) << rank;
  }
}

// No rank of the first half comes, and no rank of the second half knows why: its timeouts end at
// the same time.
TEST(ScaleOfSurvivors, SoAlsoWhereHalfOfAllAreSilent) {
  for (const int size : scales()) {
    SimulatedTime time(size);
    SimulatedStore store(time);
    const auto is_silent = [&](int rank) { return rank < size / 2; };
    EXPECT_EQ(query_of(
                  time, store, [](int) { return false; }, is_silent),
              all_good(size));
    store.tell("survivors with half of all silent");
    EXPECT_LE(store.in_all().requests(), (5 + 3 * 80 + 2 * 4 * 10) * size);
  }
}

}  // namespace
}  // namespace altorch
