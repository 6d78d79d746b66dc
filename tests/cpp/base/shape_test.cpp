// SPDX-License-Identifier: BSD-3-Clause
#include "base/shape.h"

#include <gtest/gtest.h>

#include <vector>

namespace altorch {
namespace {

constexpr int kRanks = 3;
const std::vector<std::int64_t> kCounts = {5, 0, 2};

Call even(OpKind kind, int root = 0) { return {.kind = kind, .root = root, .count = 4}; }

TEST(Shape, TensorsAreAsTorchsOperationsDefineThem) {
  const auto check = [](const Call& call, int rank, std::optional<std::int64_t> input,
                        std::optional<std::int64_t> output, std::int64_t result) {
    const Elements found = elements_of(call, rank, kRanks);
    EXPECT_EQ(found.input, input) << name_of(call.kind) << rank;
    EXPECT_EQ(found.output, output) << name_of(call.kind) << rank;
    EXPECT_EQ(result_count(call, rank, kRanks), result) << name_of(call.kind) << rank;
  };
  check(even(OpKind::kAllReduce), 1, 4, 4, 4);
  check(even(OpKind::kReduce, 1), 1, 4, 4, 4);
  check(even(OpKind::kReduce, 1), 2, 4, 4, 0);
  check(even(OpKind::kBroadcast, 1), 1, 4, 4, 0);
  check(even(OpKind::kBroadcast, 1), 2, 4, 4, 4);
  check(even(OpKind::kAllGather), 1, 4, 12, 12);
  check(even(OpKind::kReduceScatter), 1, 12, 4, 4);
  check(even(OpKind::kAllToAll), 1, 12, 12, 12);
  check(even(OpKind::kGather, 1), 1, 4, 12, 12);
  check(even(OpKind::kGather, 1), 0, 4, std::nullopt, 0);
  check(even(OpKind::kScatter, 1), 1, 12, 4, 4);
  check(even(OpKind::kScatter, 1), 0, std::nullopt, 4, 4);
  check(even(OpKind::kScan), 1, 4, 4, 4);
  check(even(OpKind::kExscan), 0, 4, 4, 0);
  check(even(OpKind::kExscan), 1, 4, 4, 4);
  check(even(OpKind::kBarrier), 0, std::nullopt, std::nullopt, 0);
  check(even(OpKind::kSend), 0, 4, std::nullopt, 0);
  check(even(OpKind::kReceive), 0, std::nullopt, 4, 4);
  check(even(OpKind::kOneSided), 0, std::nullopt, std::nullopt, 0);
}

TEST(Shape, UnevenBlocksLieSideBySide) {
  Call gather = even(OpKind::kAllGather), scatter = even(OpKind::kReduceScatter);
  gather.output_counts = scatter.input_counts = kCounts;
  EXPECT_EQ(elements_of(gather, 2, kRanks).input, 2);
  EXPECT_EQ(elements_of(gather, 2, kRanks).output, 7);
  EXPECT_EQ(part_from(gather, 0, 2)->begin, 5);
  EXPECT_EQ(part_from(gather, 0, 2)->count, 2);
  EXPECT_EQ(part_for(gather, 2, 0)->begin, 0);
  EXPECT_EQ(part_for(gather, 2, 0)->count, 2);
  EXPECT_EQ(part_for(scatter, 0, 2)->begin, 5);
  EXPECT_EQ(part_from(scatter, 2, 0)->count, 2);
  EXPECT_EQ(block_counts(gather).data(), kCounts.data());
  EXPECT_EQ(longest_block(scatter), 5);
  EXPECT_EQ(longest_block(even(OpKind::kAllToAll)), 4);
}

TEST(Shape, ARootAloneGivesOrGets) {
  EXPECT_FALSE(part_for(even(OpKind::kScatter, 1), 0, 2));
  EXPECT_EQ(part_for(even(OpKind::kScatter, 1), 1, 2)->begin, 8);
  EXPECT_FALSE(part_for(even(OpKind::kReduce, 1), 0, 2));
  EXPECT_EQ(part_for(even(OpKind::kReduce, 1), 0, 1)->count, 4);
  EXPECT_FALSE(part_from(even(OpKind::kBroadcast, 1), 0, 2));
  EXPECT_EQ(part_from(even(OpKind::kBroadcast, 1), 0, 1)->count, 4);
  EXPECT_FALSE(part_for(even(OpKind::kBarrier), 0, 1));
}

TEST(Shape, AScanGetsWhatRanksUpToItsOwnHave) {
  EXPECT_TRUE(part_from(even(OpKind::kScan), 1, 1));
  EXPECT_TRUE(part_from(even(OpKind::kScan), 1, 0));
  EXPECT_FALSE(part_from(even(OpKind::kScan), 1, 2));
  EXPECT_FALSE(part_from(even(OpKind::kExscan), 1, 1));
  EXPECT_FALSE(part_for(even(OpKind::kExscan), 0, 0));
  EXPECT_EQ(part_for(even(OpKind::kExscan), 0, 2)->count, 4);
}

TEST(Shape, SaysWhichSizesAllRanksKnow) {
  for (const OpKind kind : {OpKind::kAllToAll, OpKind::kGather, OpKind::kScatter}) {
    EXPECT_FALSE(all_know_sizes(kind));
    EXPECT_FALSE(is_vector_collective(kind));
  }
  for (const OpKind kind : {OpKind::kAllReduce, OpKind::kReduce, OpKind::kBroadcast, OpKind::kAllGather,
                            OpKind::kReduceScatter}) {
    EXPECT_TRUE(is_vector_collective(kind));
    EXPECT_EQ(has_blocks(kind), kind == OpKind::kAllGather || kind == OpKind::kReduceScatter);
  }
  EXPECT_TRUE(all_know_sizes(OpKind::kBarrier));
  EXPECT_FALSE(is_vector_collective(OpKind::kBarrier));
  EXPECT_FALSE(all_know_sizes(OpKind::kSend));
}

}  // namespace
}  // namespace altorch
