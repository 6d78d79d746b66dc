// SPDX-License-Identifier: BSD-3-Clause
#include "rendezvous/survivors.h"

#include <gtest/gtest.h>

#include <atomic>
#include <set>

#include "base/error.h"
#include "base/fields.h"
#include "support/counting_store.h"
#include "support/map_store.h"
#include "support/on_threads.h"

namespace altorch {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

SurvivorQuery query_of(int rank, int size, std::function<bool(int)> is_dead,
                       milliseconds timeout = seconds(20)) {
  return {.key = "here", .rank = rank, .size = size, .timeout = timeout, .is_dead = std::move(is_dead)};
}

std::vector<int> survivors_of(KeyValueStore& store, const SurvivorQuery& query) {
  return find_survivors(store, query).ranks;
}

TEST(Survivors, FindsAllRanksIfNoneIsLost) {
  MapStore store;
  const auto errors = on_threads(3, [&](int rank) {
    const auto left = survivors_of(store, query_of(rank, 3, [](int) { return false; }));
    EXPECT_EQ(left, (std::vector<int>{0, 1, 2}));
  });
  EXPECT_EQ(errors, std::vector<std::string>(3));
  EXPECT_EQ(survivors_of(store, query_of(0, 1, [](int) { return false; })), std::vector<int>{0});
}

TEST(Survivors, LeavesOutTheDeadAndAsksLittle) {
  constexpr int kSize = 32;
  MapStore store;
  std::vector<std::unique_ptr<CountingStore>> stores;
  for (int rank = 0; rank < kSize; ++rank) stores.push_back(std::make_unique<CountingStore>(store));
  const std::set<int> dead = {0, 7, 31};
  const auto errors = on_threads(kSize, [&](int rank) {
    if (dead.contains(rank)) return;
    const auto left = survivors_of(*stores[static_cast<std::size_t>(rank)],
                                   query_of(rank, kSize, [&](int who) { return dead.contains(who); }));
    EXPECT_EQ(left.size(), kSize - dead.size());
    EXPECT_EQ(left.front(), 1);
  });
  EXPECT_EQ(errors, std::vector<std::string>(kSize));
  for (int rank = 2; rank < kSize; ++rank) {
    EXPECT_LE(stores[static_cast<std::size_t>(rank)]->writes, 2);
    EXPECT_LE(stores[static_cast<std::size_t>(rank)]->reads, 1);
  }
}

// Ranks do not learn of a death at the same time.
TEST(Survivors, WaitsUntilTheLowestRankLeftKnowsOfTheLoss) {
  MapStore store;
  std::array<std::atomic<int>, 3> looks{};
  const auto errors = on_threads(3, [&](int rank) {
    if (rank == 0) return;
    const auto is_dead = [&](int who) {
      return who == 0 && ++looks[static_cast<std::size_t>(rank)] > 5 * rank;
    };
    EXPECT_EQ(survivors_of(store, query_of(rank, 3, is_dead)), (std::vector<int>{1, 2}));
  });
  EXPECT_EQ(errors, std::vector<std::string>(3));
}

TEST(Survivors, GoesOnWithoutARankThatDoesNotComeAndTellsIt) {
  for (const int late : {0, 2}) {
    MapStore store;
    const auto alive = [](int) { return false; };
    const auto errors = on_threads(3, [&](int rank) {
      if (rank == late) return;
      const auto left = survivors_of(store, query_of(rank, 3, alive, milliseconds(200)));
      EXPECT_EQ(left.size(), 2U);
      EXPECT_EQ(std::count(left.begin(), left.end(), late), 0);
    });
    EXPECT_EQ(errors, std::vector<std::string>(3));
    const auto told = survivors_of(store, query_of(late, 3, alive, milliseconds(200)));
    EXPECT_EQ(std::count(told.begin(), told.end(), late), 0);
  }
}

// It has taken the list upon itself, and died before it wrote one.
TEST(Survivors, BeginsAgainWhereTheOneThatWouldWriteTheListDies) {
  MapStore store;
  store.add("here/0/taken/0", 1);
  const auto errors = on_threads(3, [&](int rank) {
    if (rank == 0) return;
    const auto left = survivors_of(store, query_of(rank, 3, [](int who) { return who == 0; }));
    EXPECT_EQ(left, (std::vector<int>{1, 2}));
  });
  EXPECT_EQ(errors, std::vector<std::string>(3));
}

// Rank 1 takes the role of the writer, and is stopped until rank 2 has written another list: rank 2
// does not know that rank 3, which had announced itself, is dead.
TEST(Survivors, AllReadOneListWhereAWriterIsSlow) {
  class StoppedWriter : public StoreView {
   public:
    StoppedWriter(KeyValueStore& store, std::atomic<bool>& stands) : StoreView(store), stands_(stands) {}
    void set_once(const std::string& key, const std::string& value) override {
      stands_ = true;
      const auto until = std::chrono::steady_clock::now() + seconds(10);
      while (!try_get(key) && std::chrono::steady_clock::now() < until)
        std::this_thread::sleep_for(milliseconds(1));
      StoreView::set_once(key, value);
    }

   private:
    std::atomic<bool>& stands_;
  };
  MapStore store;
  store.set("here/0/come/3", "1");
  store.add("here/0/count", 1);
  std::atomic<bool> stands{false};
  std::array<std::vector<int>, 4> lists;
  const auto errors = on_threads(4, [&](int rank) {
    if (rank == 0 || rank == 3) return;
    StoppedWriter stopped(store, stands);
    KeyValueStore& own = rank == 1 ? static_cast<KeyValueStore&>(stopped) : store;
    const auto is_dead = [&](int who) { return who == 0 || (rank == 1 && who == 3); };
    const auto timeout = rank == 1 ? milliseconds(10'000) : milliseconds(600);
    lists[static_cast<std::size_t>(rank)] = survivors_of(own, query_of(rank, 4, is_dead, timeout));
  });
  EXPECT_EQ(errors, std::vector<std::string>(4));
  EXPECT_TRUE(stands) << "rank 1 was to write first";
  EXPECT_EQ(lists[1], (std::vector<int>{1, 2, 3}));
  EXPECT_EQ(lists[2], lists[1]);
}

// It had come before.
TEST(Survivors, LeavesOutOneThatDiesAfterItCame) {
  MapStore store;
  store.set("here/0/come/1", "1");
  store.add("here/0/count", 1);
  const auto errors = on_threads(3, [&](int rank) {
    if (rank == 1) return;
    if (rank == 2) std::this_thread::sleep_for(milliseconds(300));
    const auto left = survivors_of(store, query_of(rank, 3, [](int who) { return who == 1; }));
    EXPECT_EQ(left, (std::vector<int>{0, 2}));
  });
  EXPECT_EQ(errors, std::vector<std::string>(3));
}

// What decides whether ranks end in one world: all of them get the same answer, whatever each has
// seen.
TEST(Survivors, DecidesTheSameForAllRanks) {
  const auto alive = [](int) { return false; };
  for (const int failed : {-1, 0, 2}) {
    MapStore store;
    const auto errors = on_threads(3, [&](int rank) {
      const SurvivorQuery query = query_of(rank, 3, alive);
      const Survivors left = find_survivors(store, query);
      EXPECT_EQ(left.attempt, 0);
      EXPECT_EQ(all_succeeded(store, query, left, rank != failed), failed == -1);
      if (failed == -1) return;
      const Survivors again = find_survivors(store, query);
      EXPECT_EQ(again.attempt, 1);
      EXPECT_EQ(again.ranks, (std::vector<int>{0, 1, 2}));
      EXPECT_TRUE(all_succeeded(store, query, again, true));
    });
    EXPECT_EQ(errors, std::vector<std::string>(3));
  }
}

// One has seen its death before the others made theirs, the others see it afterwards.
TEST(Survivors, NoRankGoesOnWithARankThatDiedBeforeTheDecision) {
  MapStore store;
  std::atomic<bool> is_dead{false};
  const auto errors = on_threads(3, [&](int rank) {
    const SurvivorQuery query = query_of(rank, 3, [&](int who) { return who == 2 && is_dead; });
    const Survivors left = find_survivors(store, query);
    if (rank == 2) {
      is_dead = true;
      return;
    }
    EXPECT_FALSE(all_succeeded(store, query, left, rank == 0));
    const Survivors again = find_survivors(store, query);
    EXPECT_EQ(again.ranks, (std::vector<int>{0, 1}));
    EXPECT_TRUE(all_succeeded(store, query, again, true));
  });
  EXPECT_EQ(errors, std::vector<std::string>(3));
}

TEST(Survivors, RefusesAListOfRanksThatCannotBe) {
  for (const Fields& list : std::vector<Fields>{{}, {"0", "3"}, {"1", "0"}, {"0", "0"}, {"-1"}, {"first"}}) {
    MapStore store;
    store.set("here/0/list", encode_fields(list));
    EXPECT_THROW(survivors_of(store, query_of(1, 3, [](int) { return false; })), Error);
  }
}

}  // namespace
}  // namespace altorch
