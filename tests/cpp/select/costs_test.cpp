// SPDX-License-Identifier: BSD-3-Clause
#include "select/costs.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace altorch {
namespace {

double us(On on, OpKind kind, std::int64_t bytes, int ranks) {
  Operation operation;
  operation.kind = kind;
  operation.dtype = DType::kUInt8;
  operation.count = has_blocks(kind) ? bytes / ranks : bytes;
  return measured_seconds(on, operation, ranks) * 1e6;
}

struct Tuned {
  explicit Tuned(std::vector<CostRow> rows) { set_tuned_costs(std::move(rows)); }
  ~Tuned() { set_tuned_costs({}); }
};

TEST(Costs, GrowWithBytesAndAreThereForEveryCollective) {
  for (const On on : {On::kHost, On::kGpu}) {
    for (const int ranks : {2, 3, 4, 6, 8, 64}) {
      for (int kind = 0; kind < kRoutedKindCount; ++kind) {
        const auto each = static_cast<OpKind>(kind);
        if (!is_collective(each) || each == OpKind::kBarrier) continue;
        double before = 0;
        for (std::int64_t bytes = 64 << 10; bytes <= std::int64_t{1} << 34; bytes *= 4) {
          const double now = us(on, each, bytes, ranks);
          EXPECT_GT(now, before) << name_of(each) << " " << bytes << " " << ranks;
          before = now;
        }
        EXPECT_GT(us(on, each, 0, ranks), 0) << name_of(each);
      }
    }
  }
  EXPECT_GT(us(On::kHost, OpKind::kBarrier, 0, 2), 0);
  EXPECT_EQ(us(On::kHost, OpKind::kAllReduce, 8, 1), 0);
}

TEST(Costs, LieOnStraightLinesInLogarithms) {
  const Tuned tuned({{On::kHost, "all_reduce", 2, {{100, 10}, {10'000, 1000}}}});
  EXPECT_DOUBLE_EQ(us(On::kHost, OpKind::kAllReduce, 100, 2), 10);
  EXPECT_NEAR(us(On::kHost, OpKind::kAllReduce, 1000, 2), 100, 1e-9);
  EXPECT_DOUBLE_EQ(us(On::kHost, OpKind::kAllReduce, 1, 2), 10);
  EXPECT_NEAR(us(On::kHost, OpKind::kAllReduce, 1'000'000, 2), 100'000, 1e-6);
  // The kinds that were not measured take those that were.
  EXPECT_NEAR(us(On::kHost, OpKind::kScan, 1000, 2), 100, 1e-9);
  EXPECT_NE(us(On::kGpu, OpKind::kAllReduce, 1000, 2), 100);
}

TEST(Costs, OfOtherNumbersOfRanksAreScaled) {
  const double two = us(On::kHost, OpKind::kAllGather, 1 << 20, 2),
               four = us(On::kHost, OpKind::kAllGather, 1 << 20, 4);
  const double three = us(On::kHost, OpKind::kAllGather, 3 << 18, 3);
  EXPECT_GT(three, 0);
  const Tuned tuned({{On::kHost, "all_gather", 2, {{1 << 20, 10 * two}}}});
  EXPECT_NEAR(us(On::kHost, OpKind::kAllGather, 1 << 20, 2), 10 * two, 1e-9);
  EXPECT_NEAR(us(On::kHost, OpKind::kAllGather, 1 << 20, 4), 10 * four, 1e-6);
}

TEST(Costs, ThatDoNotHoldAreRefusedAndChangeNothing) {
  const Tuned tuned({{On::kHost, "all_reduce", 2, {{8, 33}}}});
  for (const CostRow& wrong : {CostRow{On::kHost, "all_reduce", 1, {{8, 1}}},
                               {On::kHost, "all_reduce", 2, {}},
                               {On::kHost, "all_reduce", 2, {{8, 1}, {8, 2}}},
                               {On::kHost, "all_reduce", 2, {{-1, 1}}},
                               {On::kHost, "all_reduce", 2, {{8, 0}}},
                               {On::kHost, "all_reduce", 2, {{8, std::numeric_limits<double>::infinity()}}}})
    EXPECT_THROW(set_tuned_costs({wrong}), Error);
  EXPECT_DOUBLE_EQ(us(On::kHost, OpKind::kAllReduce, 8, 2), 33);
}

}  // namespace
}  // namespace altorch
