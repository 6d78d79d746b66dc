// SPDX-License-Identifier: BSD-3-Clause
#include "runtime/scratch.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <thread>
#include <vector>

namespace altorch {
namespace {

constexpr std::size_t kMiB = std::size_t{1} << 20;

TEST(Scratch, OfManyIdleGroupsIsNoMoreThanTheBudget) {
  std::vector<Scratch> groups(50);
  for (Scratch& group : groups) {
    std::memset(group.reserve(3 * kMiB), 1, 3 * kMiB);
    group.trim();
  }
  EXPECT_LE(ScratchPool::instance().kept(), ScratchPool::kBudget);
}

TEST(Scratch, GoesFromGroupToGroup) {
  Scratch one, other;
  void* const first = one.reserve(5 * kMiB);
  one.trim();
  EXPECT_EQ(other.reserve(5 * kMiB), first);
  EXPECT_NE(one.reserve(5 * kMiB), first);
  EXPECT_EQ(other.reserve(kMiB), first);  // while it is held it stays
}

TEST(Scratch, OfSmallOperationsStaysWithItsGroup) {
  Scratch group, other;
  void* const small = group.reserve(4096);
  group.trim();
  EXPECT_NE(other.reserve(4096), small);
  EXPECT_EQ(group.reserve(4096), small);
}

TEST(Scratch, BeyondTheBudgetIsGivenBackAtOnce) {
  Scratch group;
  group.reserve(ScratchPool::kBudget + 1);
  group.trim();
  EXPECT_LE(ScratchPool::instance().kept(), ScratchPool::kBudget);
}

TEST(Scratch, IsNeverInTwoHands) {
  std::vector<std::thread> threads;
  std::atomic<int> wrong{0};
  for (int id = 1; id <= 4; ++id) {
    threads.emplace_back([id, &wrong] {
      Scratch group;
      for (int turn = 0; turn < 200; ++turn) {
        const std::size_t bytes = (100 << 10) + static_cast<std::size_t>(turn % 7) * 4096;
        auto* memory = static_cast<unsigned char*>(group.reserve(bytes));
        std::memset(memory, id, bytes);
        for (std::size_t i = 0; i < bytes; i += 512) wrong += memory[i] != id;
        group.trim();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong.load(), 0);
}

}  // namespace
}  // namespace altorch
