// SPDX-License-Identifier: BSD-3-Clause
#include "transports/shm/segment.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

#include "transports/shm/shm_ranks.h"

namespace altorch::shm {
namespace {

constexpr std::size_t kArea = 16 << 10;

// The ranks of a group, polled in turn by one thread.
std::vector<Segment> segments(int size) {
  const auto memory = plain_memory(Segment::bytes(size, kArea));
  std::vector<Segment> all;
  for (int rank = 0; rank < size; ++rank) all.emplace_back(memory, rank, size, kArea);
  return all;
}

TEST(ShmSegment, FitsItsLimitAsFarAsRanksNeedAPieceEach) {
  for (const int size : {2, 3, 8, 32, 256}) {
    for (const std::size_t limit : {std::size_t{1} << 16, std::size_t{1} << 22, std::size_t{1} << 30}) {
      const std::size_t area = Segment::area_bytes(size, limit), least = Segment::area_bytes(size, 0);
      EXPECT_GE(least / static_cast<std::size_t>(size + 1), 64u);
      EXPECT_LE(2 * static_cast<std::size_t>(size) * area,
                std::max(limit, 2 * static_cast<std::size_t>(size) * least));
      EXPECT_LE(Segment::bytes(size, least), std::size_t{20} << 20);
    }
  }
}

TEST(ShmSegment, HasAnAreaForEveryRankAndForEvenAndOddSteps) {
  auto all = segments(3);
  std::vector<std::byte*> areas;
  for (int rank = 0; rank < 3; ++rank) {
    for (const std::uint64_t step : {6u, 7u}) {
      areas.push_back(all[0].area(rank, step));
      EXPECT_EQ(areas.back(), all[0].area(rank, step + 2));
      EXPECT_EQ(reinterpret_cast<std::uintptr_t>(areas.back()) % 4096, 0u);
    }
  }
  for (std::size_t i = 1; i < areas.size(); ++i) EXPECT_EQ(areas[i], areas[i - 1] + kArea);
}

TEST(ShmSegment, ShowsAStepWithTheCallThatItIsOf) {
  auto all = segments(3);
  EXPECT_TRUE(all[0].all_at(0));
  EXPECT_FALSE(all[0].is_at(1, 1, 77));
  all[1].publish(1, 77, 5);
  EXPECT_TRUE(all[0].is_at(1, 1, 77));
  EXPECT_FALSE(all[0].is_at(1, 1, 78)) << "another call";
  EXPECT_EQ(all[2].word(1, 1), 5u);
  EXPECT_FALSE(all[0].all_are_at(1, 77)) << "rank 2 is not";
  all[2].publish(1, 78, 0);
  EXPECT_FALSE(all[0].all_are_at(1, 77)) << "rank 2 is in another call";
  EXPECT_TRUE(all[0].all_at(1)) << "whatever the call";
}

TEST(ShmSegment, KnowsRanksThatAreAhead) {
  auto all = segments(2);
  all[1].publish(1, 7, 0);
  all[1].publish(2, 7, 0);
  EXPECT_TRUE(all[0].all_at(1));
  EXPECT_TRUE(all[0].is_at(1, 1, 7)) << "its line of odd steps is as it was";
  EXPECT_TRUE(all[0].all_at(2));
  EXPECT_FALSE(all[0].all_at(3));
}

TEST(ShmSegment, SleepsUntilThePeerPublishes) {
  using Clock = std::chrono::steady_clock;
  auto all = segments(2);
  EXPECT_FALSE(all[0].is_at(1, 1, 7));
  const auto began = Clock::now();
  EXPECT_TRUE(all[0].wait_target(1, 1).sleep(std::chrono::milliseconds(2)))
      << "and for no longer than it was told";
  EXPECT_GE(Clock::now() - began, std::chrono::milliseconds(2));
  std::atomic<bool> asleep{false};
  std::thread sleeper([&] {
    asleep = true;
    while (!all[0].is_at(1, 1, 7)) all[0].wait_target(1, 1).sleep(std::chrono::seconds(30));
  });
  while (!asleep) std::this_thread::yield();
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  all[1].publish(1, 7, 0);
  sleeper.join();
  EXPECT_LT(Clock::now() - began, std::chrono::seconds(15));
  EXPECT_FALSE(all[0].wait_target(1, 1).sleep(std::chrono::seconds(30))) << "it is there already";
}

// Only one sleep is timed: on a busy machine all steps may take a minute.
TEST(ShmSegment, MissesNoStepInItsSleep) {
  constexpr std::uint64_t kSteps = 20'000;
  constexpr std::chrono::seconds kMost(30);
  auto all = segments(2);
  const auto run = [&](int rank) {
    Segment& own = all[static_cast<std::size_t>(rank)];
    for (std::uint64_t step = 1; step <= kSteps; ++step) {
      own.publish(step, 7, 0);
      while (!own.is_at(1 - rank, step, 7)) {
        const auto began = std::chrono::steady_clock::now();
        own.wait_target(1 - rank, step).sleep(kMost);
        EXPECT_LT(std::chrono::steady_clock::now() - began, kMost) << "a sleep was not ended";
      }
    }
  };
  std::thread peer(run, 1);
  run(0);
  peer.join();
}

}  // namespace
}  // namespace altorch::shm
