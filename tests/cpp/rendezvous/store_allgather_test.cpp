// SPDX-License-Identifier: BSD-3-Clause
#include "rendezvous/store_allgather.h"

#include <gtest/gtest.h>

#include <memory>

#include "support/counting_store.h"
#include "support/map_store.h"
#include "support/on_threads.h"

namespace altorch {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

std::vector<std::string> meet_at(KeyValueStore& store, int rank, int size,
                                 milliseconds timeout = seconds(20)) {
  return store_allgather(store, "here", rank, size, timeout, "to dance", std::to_string(rank));
}

TEST(StoreAllgather, CostsEachRankAFixedNumberOfRequests) {
  constexpr int kSize = 64;
  MapStore store;
  std::vector<std::unique_ptr<CountingStore>> stores;
  for (int rank = 0; rank < kSize; ++rank) stores.push_back(std::make_unique<CountingStore>(store));
  const auto errors = on_threads(kSize, [&](int rank) {
    EXPECT_EQ(meet_at(*stores[static_cast<std::size_t>(rank)], rank, kSize).back(), "63");
  });
  EXPECT_EQ(errors, std::vector<std::string>(kSize));
  for (int rank = 1; rank < kSize; ++rank) {
    EXPECT_LE(stores[static_cast<std::size_t>(rank)]->writes, 2);
    EXPECT_EQ(stores[static_cast<std::size_t>(rank)]->reads, 1);
  }
  EXPECT_LE(stores[0]->writes, 2);
}

TEST(StoreAllgather, MayBeTriedAgain) {
  MapStore store;
  const auto errors = on_threads(3, [&](int rank) {
    if (rank != 1) meet_at(store, rank, 3, milliseconds(100));
  });
  EXPECT_NE(errors[0].find("rank 1 has not come to dance: not there after 0.1 s"), std::string::npos)
      << errors[0];
  EXPECT_EQ(on_threads(3, [&](int rank) { meet_at(store, rank, 3); }), std::vector<std::string>(3));
}

TEST(StoreAllgather, ARankAloneWaitsForNoPeer) {
  MapStore store;
  const auto began = std::chrono::steady_clock::now();
  EXPECT_EQ(meet_at(store, 0, 1), std::vector<std::string>{"0"});
  leave_in_turn(store, "left", 0, 1, seconds(20));
  EXPECT_LT(std::chrono::steady_clock::now() - began, seconds(2));
}

// Does not answer for a while, as a store whose host is stopped.
class SleepyStore : public StoreView {
 public:
  using StoreView::StoreView;
  std::optional<std::string> try_get(const std::string& key) override {
    if (++looks < 20) throw Error(ErrorKind::kTimeout, "the store does not answer");
    return StoreView::try_get(key);
  }
  int looks = 0;
};

TEST(StoreAllgather, OutlivesAStoreThatDoesNotAnswerForAWhile) {
  MapStore store;
  const auto errors = on_threads(2, [&](int rank) {
    SleepyStore sleepy(store);
    EXPECT_EQ(meet_at(sleepy, rank, 2).size(), 2u);
  });
  EXPECT_EQ(errors, std::vector<std::string>(2));
}

TEST(StoreAllgather, ASilentStoreIsNotTakenForAnAbsentRank) {
  MapStore store;
  const auto errors = on_threads(2, [&](int rank) {
    SleepyStore silent(store);
    silent.looks = -1'000'000;
    meet_at(silent, rank, 2, milliseconds(100));
  });
  for (const std::string& error : errors) {
    EXPECT_NE(error.find("some rank has not come"), std::string::npos) << error;
    EXPECT_NE(error.find("the store does not answer"), std::string::npos) << error;
  }
}

TEST(StoreAllgather, WhoComesTooLateIsToldThatTheOthersHaveGone) {
  MapStore store;
  const auto errors = on_threads(2, [&](int rank) {
    if (rank == 1) std::this_thread::sleep_for(milliseconds(600));
    meet_at(store, rank, 2, milliseconds(200));
  });
  EXPECT_NE(errors[0].find("rank 1 has not come"), std::string::npos) << errors[0];
  EXPECT_NE(errors[1].find("rank 0 has waited no longer for the last ones that came"), std::string::npos)
      << errors[1];
}

TEST(StoreAllgather, TheHostOfTheStoreLeavesLast) {
  MapStore store;
  std::atomic<bool> left{false};
  const auto errors = on_threads(3, [&](int rank) {
    if (rank == 2) {
      std::this_thread::sleep_for(milliseconds(200));
      EXPECT_FALSE(left.load());
    }
    leave_in_turn(store, "left", rank, 3, seconds(20));
    if (rank == 0) left = true;
  });
  EXPECT_EQ(errors, std::vector<std::string>(3));
  const auto began = std::chrono::steady_clock::now();
  leave_in_turn(store, "no rank leaves", 0, 3, milliseconds(100));
  EXPECT_LT(std::chrono::steady_clock::now() - began, seconds(5));
}

}  // namespace
}  // namespace altorch
