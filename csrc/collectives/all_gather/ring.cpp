// SPDX-License-Identifier: BSD-3-Clause
// Every block goes once around the ring: (p-1) (a + n b), all of it between neighbours. For large
// blocks.
#include "collectives/phases/ring.h"

#include "collectives/cost.h"

namespace altorch::schedules::all_gather {
namespace {

Schedule build(const Problem& problem) {
  ScheduleBuilder builder;
  const Blocks blocks(problem.output_counts, problem.count, problem.size);
  const Slice own{Region::kInput, 0, blocks.count(problem.rank)};
  builder.copy(own, blocks.block(Region::kOutput, problem.rank));
  ring_all_gather(builder, ring_place(problem.rank, problem.size), blocks, Region::kOutput, own);
  return builder.finish();
}

}  // namespace

extern const Algorithm ring = {
    .kind = OpKind::kAllGather,
    .name = "ring",
    .summary = "every block once around a ring of neighbours; large blocks",
    .cost_formula = "(p-1) (a + n b)",
    .cost = cost::one_after_another,
    .build = build,
};

}  // namespace altorch::schedules::all_gather
