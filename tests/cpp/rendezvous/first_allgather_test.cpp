// SPDX-License-Identifier: BSD-3-Clause
#include "rendezvous/first_allgather.h"

#include <gtest/gtest.h>

#include <memory>
#include <set>

#include "support/counting_store.h"
#include "support/map_store.h"
#include "support/on_threads.h"

namespace altorch {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

FirstAllgather allgather_of(KeyValueStore& store, int rank, int size, milliseconds timeout = seconds(20)) {
  return first_allgather(store, "g", rank, size, timeout, "to make group 'g'",
                         {"info", std::to_string(rank)});
}

std::vector<FirstAllgather> all_come(KeyValueStore& store, int size) {
  std::vector<FirstAllgather> met(static_cast<std::size_t>(size));
  const auto errors = on_threads(
      size, [&](int rank) { met[static_cast<std::size_t>(rank)] = allgather_of(store, rank, size); });
  EXPECT_EQ(errors, std::vector<std::string>(static_cast<std::size_t>(size)));
  return met;
}

TEST(FirstAllgather, AllRanksGetAllWordsAndOnePrefix) {
  MapStore store;
  std::set<std::string> prefixes;
  for (int life = 0; life < 20; ++life) {
    const auto met = all_come(store, 3);
    for (const FirstAllgather& one : met) {
      EXPECT_EQ(one.prefix, met[0].prefix);
      EXPECT_EQ(one.infos, (std::vector<Fields>{{"info", "0"}, {"info", "1"}, {"info", "2"}}));
    }
    prefixes.insert(met[0].prefix);
  }
  EXPECT_EQ(prefixes.size(), 20u);
}

TEST(FirstAllgather, WhatEarlierLivesLeftIsNotTakenForThisOne) {
  MapStore store;
  // A challenge whose rank 0 died, with the answers of all ranks to it and a table.
  store.set("g/challenge", "old");
  store.set("g/old/count", "2");
  for (const int rank : {0, 1, 2}) store.set("g/old/info/" + std::to_string(rank), encode_fields({"x", "y"}));
  store.set("g/old/table", encode_rows({{"x", "old"}, {"x", "old"}, {"x", "old"}}));
  std::vector<FirstAllgather> met(3);
  const auto errors = on_threads(3, [&](int rank) {
    if (rank == 0) std::this_thread::sleep_for(milliseconds(200));
    met[static_cast<std::size_t>(rank)] = allgather_of(store, rank, 3);
  });
  EXPECT_EQ(errors, std::vector<std::string>(3));
  for (const FirstAllgather& one : met) {
    EXPECT_NE(one.prefix, "g/old");
    ASSERT_EQ(one.infos.size(), 3u);
    EXPECT_EQ(one.infos[2], (Fields{"info", "2"}));
  }
}

TEST(FirstAllgather, NamesWhoDidNotComeAndWorksWhenTheyComeTogetherLater) {
  MapStore store;
  const auto errors = on_threads(3, [&](int rank) {
    if (rank != 1) allgather_of(store, rank, 3, milliseconds(300));
  });
  for (const int rank : {0, 2})
    EXPECT_NE(errors[static_cast<std::size_t>(rank)].find("rank 1 has not come to make group 'g'"),
              std::string::npos)
        << errors[static_cast<std::size_t>(rank)];
  EXPECT_EQ(all_come(store, 3)[1].infos.size(), 3u);
}

TEST(FirstAllgather, WithoutRankZeroTheOthersSaySo) {
  MapStore store;
  const auto errors = on_threads(3, [&](int rank) {
    if (rank != 0) allgather_of(store, rank, 3, milliseconds(200));
  });
  EXPECT_NE(errors[2].find("rank 0 has not come"), std::string::npos) << errors[2];
}

TEST(FirstAllgather, CostsEachRankAFixedNumberOfRequests) {
  constexpr int kSize = 64;
  MapStore store;
  for (int life = 0; life < 2; ++life) {
    std::vector<std::unique_ptr<CountingStore>> stores;
    for (int rank = 0; rank < kSize; ++rank) stores.push_back(std::make_unique<CountingStore>(store));
    const auto errors = on_threads(kSize, [&](int rank) {
      std::this_thread::sleep_for(milliseconds(rank == 7 ? 500 : 0));
      allgather_of(*stores[static_cast<std::size_t>(rank)], rank, kSize);
    });
    EXPECT_EQ(errors, std::vector<std::string>(kSize));
    for (int rank = 0; rank < kSize; ++rank) {
      const CountingStore& asked = *stores[static_cast<std::size_t>(rank)];
      EXPECT_LE(asked.writes, 4) << "rank " << rank;
      // Rank 0 polls a counter that is there; the others look now and then whether the challenge
      // has changed.
      EXPECT_LE(asked.reads + asked.polls, 80) << "rank " << rank;
      if (rank != 0) {
        EXPECT_LE(asked.reads, 40) << "rank " << rank;
      }
    }
  }
}

}  // namespace
}  // namespace altorch
