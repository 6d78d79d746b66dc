// SPDX-License-Identifier: BSD-3-Clause
// What it costs the store that all ranks of a job hear of a death.
#include <gtest/gtest.h>

#include <set>

#include "health/death_list.h"
#include "support/on_threads.h"
#include "support/simulated_store.h"

namespace altorch {
namespace {

using std::chrono::seconds;

constexpr int kRanksOfANode = 128;

// The first `deaths` ranks of a node die one after another. Its other ranks see and tell it; all
// ask once a second.
void die(SimulatedTime& time, int deaths, const std::shared_ptr<SimulatedStore>& store) {
  const int size = time.ranks(), node = std::min(size, kRanksOfANode);
  const auto errors = time.run([&](int rank) {
    DeathList told(store), heard(store);
    std::set<int> dead;
    for (int second = 0; second < 5; ++second) {
      if (second == 1 && rank < node) {
        for (int who = 0; who < std::min(deaths, rank); ++who) told.add(who);
      }
      if (rank < deaths && second > 0) return;
      for (const int who : heard.take_new()) dead.insert(who);
      WaitClock::sleep_for(seconds(1));
    }
    EXPECT_EQ(dead.size(), static_cast<std::size_t>(deaths)) << rank;
  });
  EXPECT_EQ(errors, all_good(size));
}

TEST(ScaleOfDeaths, OneQuestionASecondAndOneForAllNews) {
  for (const int size : scales()) {
    SimulatedTime time(size);
    const auto store = std::make_shared<SimulatedStore>(time);
    die(time, 1, store);
    store->tell("death");
    EXPECT_LE(store->most(), 5 + 2 + 3);
    EXPECT_EQ(store->value("deaths").value_or(""),
              std::to_string(std::min(size - 1, 2)));  // told by two at the most
  }
}

TEST(ScaleOfDeaths, OfManyAtOnceToo) {
  for (const int size : scales()) {
    if (size <= kRanksOfANode) continue;
    SimulatedTime time(size);
    const auto store = std::make_shared<SimulatedStore>(time);
    die(time, kRanksOfANode / 2, store);
    store->tell("64 deaths");
    for (int rank = kRanksOfANode; rank < size; ++rank) EXPECT_LE(store->of(rank).requests(), 5 + 3) << rank;
    EXPECT_LE(store->in_all().requests(), 8 * size + 3 * kRanksOfANode * kRanksOfANode);
  }
}

}  // namespace
}  // namespace altorch
