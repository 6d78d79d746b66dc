// SPDX-License-Identifier: BSD-3-Clause
// Every vector straight to the root, which combines them: (p-1) (a + n b + n g), one wait. For
// small vectors among few ranks; half types travel as they are and are rounded once.
#include "collectives/cost.h"
#include "collectives/phases/exchange.h"

namespace altorch::schedules::reduce {
namespace {

Schedule build(const Problem& problem) {
  ScheduleBuilder builder;
  const int rank = problem.rank, size = problem.size, root = problem.root;
  const Slice own{Region::kInput, 0, problem.count}, result{Region::kOutput, 0, problem.count};
  if (rank != root) {
    builder.send(root, own);
  } else if (size == 1) {
    builder.copy(own, result);
  } else {
    const Slice others = builder.scratch((size - 1) * problem.count);
    for (int distance = 1; distance < size; ++distance) {
      const int from = wrap(rank + distance, size);
      builder.receive(from, part_from(others, from, rank, problem.count));
    }
    builder.end_round();
    builder.combine(others, own, rank, result);
  }
  return builder.finish();
}

}  // namespace

extern const Algorithm linear = {
    .kind = OpKind::kReduce,
    .name = "linear",
    .summary = "every vector straight to the root; small vectors, few ranks",
    .cost_formula = "(p-1) (a + n b + n g)",
    .combines = true,
    .cost = cost::vectors_summed,
    .build = build,
};

}  // namespace altorch::schedules::reduce
