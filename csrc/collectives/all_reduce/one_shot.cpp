// SPDX-License-Identifier: BSD-3-Clause
// Every rank sends its whole vector to all other ranks, and combines the parts in rank order: (p-1)
// (a + n b + n g). A rank waits for its peers once. That is what counts for small vectors among few
// ranks, above all where ranks share cores.
#include "collectives/cost.h"
#include "collectives/phases/exchange.h"

namespace altorch::schedules::all_reduce {
namespace {

Schedule build(const Problem& problem) {
  ScheduleBuilder builder;
  const int rank = problem.rank, size = problem.size;
  if (size == 1) return builder.finish();
  const Slice vector{Region::kOutput, 0, problem.count}, others = builder.scratch((size - 1) * problem.count);
  exchange(
      builder, rank, size, [&](int) { return vector; },
      [&](int from) { return part_from(others, from, rank, problem.count); });
  builder.end_round();
  builder.combine(others, vector, rank, vector);
  return builder.finish();
}

}  // namespace

extern const Algorithm one_shot = {
    .kind = OpKind::kAllReduce,
    .name = "one_shot",
    .summary = "everyone sends all it has to everyone; small vectors, few ranks",
    .cost_formula = "(p-1) (a + n b + n g)",
    .combines = true,
    .cost = cost::vectors_summed,
    .build = build,
};

}  // namespace altorch::schedules::all_reduce
