// SPDX-License-Identifier: BSD-3-Clause
#include "runtime/buffer_overlap.h"

#include <gtest/gtest.h>

#include <vector>

namespace altorch {
namespace {

constexpr int kRanks = 3;
constexpr std::int64_t kBlock = 10;

// Rank 1's call; offsets in elements of one tensor. A null pointer where it has no such buffer.
Call call_of(OpKind kind, std::vector<float>& memory, std::int64_t input, std::int64_t output, int root = 1) {
  Call call;
  call.kind = kind;
  call.dtype = DType::kFloat32;
  call.root = root;
  call.count = kBlock;
  call.input = input < 0 ? nullptr : memory.data() + input;
  call.output = output < 0 ? nullptr : memory.data() + output;
  return call;
}
bool overwrites(const Call& call) { return overwrites_its_input(call, 1, kRanks); }

TEST(Overlap, IsHarmlessInTheOwnBlockOnly) {
  std::vector<float> memory(2 * kRanks * kBlock);
  for (const OpKind kind : {OpKind::kReduceScatter, OpKind::kScatter}) {
    EXPECT_FALSE(overwrites(call_of(kind, memory, 0, kBlock))) << name_of(kind);
    for (const std::int64_t output : {0L, kBlock - 1, kBlock + 1, 2 * kBlock, 3 * kBlock - 1})
      EXPECT_TRUE(overwrites(call_of(kind, memory, 0, output))) << name_of(kind) << output;
    EXPECT_FALSE(overwrites(call_of(kind, memory, 0, 3 * kBlock))) << name_of(kind);
    EXPECT_FALSE(overwrites(call_of(kind, memory, kBlock, 0))) << name_of(kind);
  }
  for (const OpKind kind : {OpKind::kAllGather, OpKind::kGather}) {
    EXPECT_FALSE(overwrites(call_of(kind, memory, kBlock, 0))) << name_of(kind);
    for (const std::int64_t input : {0L, kBlock - 1, kBlock + 1, 2 * kBlock, 3 * kBlock - 1})
      EXPECT_TRUE(overwrites(call_of(kind, memory, input, 0))) << name_of(kind) << input;
    EXPECT_FALSE(overwrites(call_of(kind, memory, 3 * kBlock, 0))) << name_of(kind);
  }
  EXPECT_TRUE(overwrites(call_of(OpKind::kAllToAll, memory, 0, 0)));
  EXPECT_TRUE(overwrites(call_of(OpKind::kAllToAll, memory, 0, 3 * kBlock - 1)));
  EXPECT_FALSE(overwrites(call_of(OpKind::kAllToAll, memory, 0, 3 * kBlock)));
}

TEST(Overlap, CountsUnevenBlocks) {
  std::vector<float> memory(100);
  const std::vector<std::int64_t> counts = {7, 0, 20};
  Call call = call_of(OpKind::kReduceScatter, memory, 0, 3);
  call.input_counts = counts;
  EXPECT_FALSE(overwrites(call)) << "an empty block overwrites nothing";
  EXPECT_TRUE(overwrites_its_input(call, 0, kRanks));
  EXPECT_EQ(input_bytes(call, 1, kRanks), 27 * sizeof(float));
  call = call_of(OpKind::kAllGather, memory, 26, 0);
  call.output_counts = counts;
  EXPECT_TRUE(overwrites_its_input(call, 0, kRanks));
  EXPECT_EQ(input_bytes(call, 0, kRanks), 7 * sizeof(float));
}

TEST(Overlap, NeedsBothBuffers) {
  std::vector<float> memory(kRanks * kBlock);
  EXPECT_FALSE(overwrites(call_of(OpKind::kScatter, memory, -1, 0, /*root=*/0)));
  EXPECT_FALSE(overwrites(call_of(OpKind::kGather, memory, 0, -1, /*root=*/0)));
  EXPECT_FALSE(overwrites(call_of(OpKind::kAllReduce, memory, 0, 0)));
}

}  // namespace
}  // namespace altorch
