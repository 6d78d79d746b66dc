// SPDX-License-Identifier: BSD-3-Clause
// The root sends to all other ranks: (p-1) (a + n b), one wait. For small vectors among few ranks.
#include "collectives/cost.h"
#include "collectives/phases/blocks.h"
#include "collectives/schedule_builder.h"

namespace altorch::schedules::broadcast {
namespace {

Schedule build(const Problem& problem) {
  ScheduleBuilder builder;
  const Slice vector{Region::kOutput, 0, problem.count};
  if (problem.rank != problem.root) builder.receive(problem.root, vector);
  for (int distance = 1; problem.rank == problem.root && distance < problem.size; ++distance) {
    builder.send(wrap(problem.root + distance, problem.size), vector);
  }
  return builder.finish();
}

}  // namespace

extern const Algorithm linear = {
    .kind = OpKind::kBroadcast,
    .name = "linear",
    .summary = "from the root straight to everyone; small vectors, few ranks",
    .cost_formula = "(p-1) (a + n b)",
    .cost = cost::one_after_another,
    .build = build,
};

}  // namespace altorch::schedules::broadcast
