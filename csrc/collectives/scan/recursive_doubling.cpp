// SPDX-License-Identifier: BSD-3-Clause
// scan and exscan in log2(p) rounds. exscan first hands every vector to the rank above, which
// leaves rank 0 its own.
#include "collectives/cost.h"
#include "collectives/phases/prefix.h"

namespace altorch::schedules::scan {
namespace {

Schedule build_scan(const Problem& problem) {
  ScheduleBuilder builder;
  const Slice vector{Region::kOutput, 0, problem.count};
  const Slice arrived = builder.scratch(problem.rank > 0 ? problem.count : 0);
  prefix(builder, problem.rank, problem.size, /*first=*/0, vector, arrived);
  return builder.finish();
}

Schedule build_exscan(const Problem& problem) {
  ScheduleBuilder builder;
  const int rank = problem.rank, size = problem.size;
  const Slice vector{Region::kOutput, 0, problem.count};
  const Slice arrived = builder.scratch(rank > 0 ? problem.count : 0);
  if (rank + 1 < size) builder.send(rank + 1, vector);
  if (rank > 0) builder.receive(rank - 1, arrived);
  builder.end_round();
  if (rank > 0) {
    builder.copy(arrived, vector);
    builder.end_round();
    prefix(builder, rank - 1, size - 1, /*first=*/1, vector, arrived);
  }
  return builder.finish();
}

double cost_of_scan(int p, double n, const CostModel& m) {
  return cost::ceil_log2(p) * (m.alpha + n * (m.beta + m.gamma));
}
double cost_of_exscan(int p, double n, const CostModel& m) {
  return p < 2 ? 0 : m.alpha + n * m.beta + cost_of_scan(p - 1, n, m);
}

}  // namespace

extern const Algorithm recursive_doubling = {
    .kind = OpKind::kScan,
    .name = "recursive_doubling",
    .summary = "to the rank at distance 1, 2, 4, ... above; fewest rounds",
    .cost_formula = "log2(p) (a + n b + n g)",
    .cost = cost_of_scan,
    .build = build_scan,
};

extern const Algorithm recursive_doubling_below = {
    .kind = OpKind::kExscan,
    .name = "recursive_doubling",
    .summary = "one step up, then as a scan among the ranks above the first",
    .cost_formula = "a + n b + log2(p-1) (a + n b + n g)",
    .cost = cost_of_exscan,
    .build = build_exscan,
};

}  // namespace altorch::schedules::scan
