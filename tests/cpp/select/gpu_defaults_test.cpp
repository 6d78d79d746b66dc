// SPDX-License-Identifier: BSD-3-Clause
#include "select/gpu_defaults.h"

#include <gtest/gtest.h>

#include "select/table.h"

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
TEST(GpuDefaults, NoRowIsBehindOthersThatServeAllOfItsCalls) {
  const auto rows = gpu_default_rows();
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
                if (rows[i].route != route || !rows[i].serves(operation, among)) continue;
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
    EXPECT_GT(first[i], 0) << "row " << i << " of " << rows[i].route->name;
}

TEST(GpuDefaults, LimitsAreForWhatARankSends) {
  const World four = gpu_world(4, /*linked=*/true, /*shared=*/false);
  const auto first = [&](OpKind kind, std::int64_t bytes) -> std::string_view {
    for (const GpuDefaultRow& row : gpu_default_rows())
      if (row.serves(bytes_call(kind, bytes), four)) return row.route->name;
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
  for (const GpuDefaultRow& row : gpu_default_rows()) EXPECT_FALSE(row.serves(uneven, four));
}

}  // namespace
}  // namespace altorch
