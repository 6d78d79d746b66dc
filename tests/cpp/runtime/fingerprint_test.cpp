// SPDX-License-Identifier: BSD-3-Clause
#include "runtime/fingerprint.h"

#include <gtest/gtest.h>

#include <set>

#include "base/error.h"

namespace altorch {
namespace {

Operation operation(OpKind kind, DType dtype, std::int64_t count, int root = 0,
                    ReduceOp op = ReduceOp::kSum) {
  Operation made;
  made.kind = kind;
  made.dtype = dtype;
  made.count = count;
  made.root = root;
  made.op = op;
  return made;
}

TEST(Fingerprint, TellsOperationsApart) {
  std::set<std::uint64_t> seen;
  int made = 0;
  for (const OpKind kind : {OpKind::kAllReduce, OpKind::kBroadcast, OpKind::kAllGather}) {
    for (const DType dtype : {DType::kFloat32, DType::kInt32}) {
      for (const std::int64_t count : {0, 1, 2, 1 << 30}) {
        seen.insert(fingerprint(operation(kind, dtype, count)));
        ++made;
      }
    }
  }
  seen.insert(fingerprint(operation(OpKind::kAllReduce, DType::kFloat32, 1, 0, ReduceOp::kMax)));
  seen.insert(fingerprint(operation(OpKind::kBroadcast, DType::kFloat32, 1, 3)));
  EXPECT_EQ(static_cast<int>(seen.size()), made + 2);
}

TEST(Fingerprint, StaysWhenTheOperationIsRememberedWithoutItsSpans) {
  const std::int64_t counts[] = {3, 5};
  for (const OpKind kind : {OpKind::kAllGather, OpKind::kReduceScatter, OpKind::kAllToAll}) {
    Operation uneven = operation(kind, DType::kFloat32, 3);
    uneven.input_counts = uneven.output_counts = counts;
    const Operation copy = remembered(uneven);
    EXPECT_FALSE(copy.uneven());
    EXPECT_EQ(fingerprint(copy), fingerprint(uneven));
  }
  const Operation even = operation(OpKind::kAllReduce, DType::kFloat32, 7);
  EXPECT_EQ(fingerprint(remembered(even)), fingerprint(even));
  const RmsNorm norm{};
  Operation normed = even;
  normed.norm = &norm;
  normed.norm_row = 7;
  const Operation copy = remembered(normed);
  EXPECT_EQ(copy.norm, nullptr);
  EXPECT_EQ(fingerprint(copy), fingerprint(normed));
  EXPECT_NE(fingerprint(normed), fingerprint(even));
  // Ranks whose rows differ would take other words for theirs.
  std::set<std::uint64_t> seen;
  for (const std::int64_t row : {1, 7, 8191, 8192, 8193, 16384, 1 << 20, (1 << 20) + 1}) {
    normed.norm_row = row;
    seen.insert(fingerprint(normed));
  }
  EXPECT_EQ(seen.size(), 8u);
}

TEST(Fingerprint, LeavesOutWhatRanksMayRightlySeeDifferently) {
  EXPECT_EQ(fingerprint(operation(OpKind::kAllToAll, DType::kInt8, 3)),
            fingerprint(operation(OpKind::kAllToAll, DType::kInt8, 9)));
  // A broadcast does not reduce: its fingerprint leaves out the operator.
  EXPECT_EQ(fingerprint(operation(OpKind::kBroadcast, DType::kInt8, 3, 0, ReduceOp::kMax)),
            fingerprint(operation(OpKind::kBroadcast, DType::kInt8, 3)));
}

// At 0dff7ae an empty all_reduce(SUM) of uint8 had that of a call that was refused.
TEST(Fingerprint, NoOperationLooksLikeOneThatWasRefused) {
  EXPECT_NE(fingerprint(operation(OpKind::kAllReduce, DType::kUInt8, 0)), CallNote::kRefused);
  Operation last = operation(OpKind::kReceive, DType::kFloat32, -1, -1);
  last.device = 0;
  EXPECT_NE(fingerprint(last), CallNote::kRefused);
}

TEST(Fingerprint, ReadsBackAsASentence) {
  EXPECT_EQ(describe_fingerprint(fingerprint(operation(OpKind::kAllReduce, DType::kFloat32, 10))),
            "all_reduce(SUM) of 10 float32");
  EXPECT_EQ(describe_fingerprint(fingerprint(operation(OpKind::kBroadcast, DType::kInt64, 4, 2))),
            "broadcast of 4 int64 with root 2");
  EXPECT_EQ(describe_fingerprint(fingerprint(operation(OpKind::kBarrier, DType::kUInt8, 0))), "barrier");
  Operation on_gpu = operation(OpKind::kAllReduce, DType::kFloat32, 10);
  on_gpu.device = 3;
  EXPECT_EQ(describe_fingerprint(fingerprint(on_gpu)), "all_reduce(SUM) of 10 float32 on a GPU");
  on_gpu.norm_row = 5;
  EXPECT_EQ(describe_fingerprint(fingerprint(on_gpu)),
            "all_reduce(SUM) of 10 float32 and a norm of rows of 5 behind it on a GPU");
}

Operation numbered(std::uint64_t sequence, std::uint64_t history = 0) {
  Operation made = operation(OpKind::kAllReduce, DType::kFloat32, 1);
  made.sequence = sequence;
  made.history = history;
  return made;
}

TEST(Fingerprint, TagsStayInTheirBits) {
  for (const int bits : {18, 20, 29}) {
    for (std::uint64_t sequence = 0; sequence < 100000; sequence += 777) {
      const auto tag = collective_tag(numbered(sequence), sequence * 0x123456789, bits);
      EXPECT_GE(tag, 0);
      EXPECT_LT(tag, std::int64_t{1} << bits);
    }
    EXPECT_NE(collective_tag(numbered(1), 5, bits), collective_tag(numbered(2), 5, bits));
  }
  EXPECT_THROW(collective_tag(numbered(1), 5, 15), Error);
}

// At 1aa6fc3 a tag came back after 2^13 calls, and with it what a failed call had left behind.
TEST(Fingerprint, EqualCallsAfterDifferentOnesHaveOtherTags) {
  for (const int bits : {18, 27}) {
    int equal = 0;
    constexpr int kCalls = 20000;
    for (std::uint64_t number = 1; number <= kCalls; ++number) {
      const std::uint64_t one = append_call(number, 7),
                          other = append_call(append_call(number, 7), CallNote::kRefused);
      equal += collective_tag(numbered(3, one), 5, bits) == collective_tag(numbered(3, other), 5, bits);
    }
    EXPECT_LE(equal, 2 * kCalls / (1 << (bits - 8)) + 3);
  }
}

TEST(Fingerprint, OfNoOperationIsDescribedAsThat) {
  for (const std::uint64_t bits :
       {CallNote::kRefused - 1, std::uint64_t{kOpKindCount} << 59, std::uint64_t{20} << 54})
    EXPECT_EQ(describe_fingerprint(bits), "something that is no operation");
}

}  // namespace
}  // namespace altorch
