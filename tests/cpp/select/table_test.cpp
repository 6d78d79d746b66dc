// SPDX-License-Identifier: BSD-3-Clause
#include "select/table.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "select/gpu_route.h"

namespace altorch {
namespace {

World gpu_world(int ranks, bool linked, bool shared) {
  World made{.ranks = ranks, .linked = linked};
  if (shared) made.same_gpu = {0, 1};
  made.missing.resize(gpu_route_rows().size());
  return made;
}

Operation bytes_call(OpKind kind, std::int64_t bytes) {
  Operation operation;
  operation.kind = kind;
  operation.dtype = DType::kUInt8;
  operation.count = bytes;
  operation.device = 0;
  return operation;
}

// Of each row: how many calls it serves that no row before it serves.
TEST(Table, NoRowIsBehindOthersThatServeAllOfItsCalls) {
  const auto rows = rows_on(On::kGpu);
  std::vector<int> first(rows.size());
  for (const int ranks : {2, 3, 4, 8, 9, 16}) {
    for (const bool linked : {false, true}) {
      for (const bool shared : {false, true}) {
        if (linked && shared) continue;
        const World among = gpu_world(ranks, linked, shared);
        for (int kind = 0; kind < kRoutedKindCount; ++kind) {
          for (std::int64_t bytes = 1; bytes <= 512 * kMiB; bytes *= 2) {
            const Operation operation = bytes_call(static_cast<OpKind>(kind), bytes);
            // A row whose route cannot carry the call is passed over: count each route by itself.
            for (const GpuRouteRow* route : gpu_route_rows()) {
              for (std::size_t i = 0; i < rows.size(); ++i) {
                if (rows[i].carrier != route->name || !rows[i].serves(operation, among)) continue;
                ++first[i];
                break;
              }
            }
          }
        }
      }
    }
  }
  for (std::size_t i = 0; i < rows.size(); ++i)
    EXPECT_GT(first[i], 0) << "row " << i << " of " << rows[i].carrier;
}

TEST(Table, LimitsAreForWhatARankSends) {
  const World four = gpu_world(4, /*linked=*/true, /*shared=*/false);
  const auto first = [&](OpKind kind, std::int64_t bytes) -> std::string_view {
    for (const Row& row : rows_on(On::kGpu))
      if (!row.is_general() && row.serves(bytes_call(kind, bytes), four)) return row.carrier;
    return "none";
  };
  // A block for each of four ranks.
  EXPECT_EQ(first(OpKind::kReduceScatter, 16 * kMiB), "peer");
  EXPECT_EQ(first(OpKind::kReduceScatter, 16 * kMiB + 1), "none");
  EXPECT_EQ(first(OpKind::kAllReduce, 16 * kMiB), "peer");
  EXPECT_EQ(first(OpKind::kAllReduce, 16 * kMiB + 1), "none");
  EXPECT_EQ(first(OpKind::kAllReduce, 0), "none");
  EXPECT_EQ(first(OpKind::kBarrier, 0), "none");
  EXPECT_EQ(first(OpKind::kSend, 8), "none");
  Operation uneven = bytes_call(OpKind::kAllGather, 8);
  const std::vector<std::int64_t> counts = {1, 2, 3, 4};
  uneven.output_counts = counts;
  for (const Row& row : rows_on(On::kGpu)) EXPECT_EQ(row.serves(uneven, four), row.is_general());
}

TEST(Table, EveryRowNamesWhatThereIs) {
  for (const Row& row : rows_on(On::kHost)) {
    const bool native = row.kinds == kAllKinds;
    EXPECT_EQ(algorithm_of(row) == nullptr, native) << row.carrier;
  }
  for (const Row& row : rows_on(On::kGpu)) {
    EXPECT_TRUE(std::ranges::any_of(gpu_route_rows(), [&](const auto* each) {
      return each->name == row.carrier;
    })) << row.carrier;
  }
  // A route that no row names would never be taken.
  for (const GpuRouteRow* route : gpu_route_rows()) {
    EXPECT_TRUE(std::ranges::any_of(rows_on(On::kGpu), [&](const Row& row) {
      return row.carrier == route->name && row.is_general();
    })) << route->name;
  }
}

TEST(Table, RowsWithLimitsSayWhatMeasuredThem) {
  for (const On on : {On::kHost, On::kGpu, On::kHostWindow, On::kGpuWindow, On::kLinks}) {
    for (const Row& row : rows_on(on)) {
      const bool limited = row.limits.bytes != kUnlimited || row.limits.to_all != kUnlimited;
      EXPECT_TRUE(!limited || *row.benchmark) << row.carrier;
      EXPECT_STRNE(row.reason, "") << row.carrier;
    }
  }
}

}  // namespace
}  // namespace altorch
