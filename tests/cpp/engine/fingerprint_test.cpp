#include "engine/fingerprint.h"

#include <gtest/gtest.h>

#include <set>

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
}

TEST(Fingerprint, LeavesOutWhatRanksMayRightlySeeDifferently) {
  EXPECT_EQ(fingerprint(operation(OpKind::kAllToAll, DType::kInt8, 3)),
            fingerprint(operation(OpKind::kAllToAll, DType::kInt8, 9)));
  // The reduction of a broadcast is nobody's business.
  EXPECT_EQ(fingerprint(operation(OpKind::kBroadcast, DType::kInt8, 3, 0, ReduceOp::kMax)),
            fingerprint(operation(OpKind::kBroadcast, DType::kInt8, 3)));
}

TEST(Fingerprint, ReadsBackAsASentence) {
  EXPECT_EQ(describe_fingerprint(fingerprint(operation(OpKind::kAllReduce, DType::kFloat32, 10))),
            "all_reduce(SUM) of 10 float32");
  EXPECT_EQ(describe_fingerprint(fingerprint(operation(OpKind::kBroadcast, DType::kInt64, 4, 2))),
            "broadcast of 4 int64 with root 2");
  EXPECT_EQ(describe_fingerprint(fingerprint(operation(OpKind::kBarrier, DType::kUInt8, 0))), "barrier");
}

TEST(Fingerprint, TagsStayInTheirBits) {
  for (const int bits : {14, 20, 29}) {
    for (std::uint64_t sequence = 0; sequence < 100000; sequence += 777) {
      const auto tag = collective_tag(sequence, sequence * 0x123456789, bits);
      EXPECT_GE(tag, 0);
      EXPECT_LT(tag, std::int64_t{1} << bits);
    }
    EXPECT_NE(collective_tag(1, 5, bits), collective_tag(2, 5, bits));
  }
}

}  // namespace
}  // namespace altorch
