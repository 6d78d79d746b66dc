// SPDX-License-Identifier: BSD-3-Clause
// The block of each rank travels once around the ring to it and is summed on the way: (p-1) (a + n
// b + n g), all of it between neighbours. Segments overlap the additions with the messages and keep
// scratch small.
#include "collectives/phases/ring.h"

#include "collectives/cost.h"

namespace altorch::schedules::reduce_scatter {
namespace {

Schedule build(const Problem& problem) {
  ScheduleBuilder builder;
  const Blocks blocks(problem.input_counts, problem.count, problem.size);
  const Slice result{Region::kOutput, 0, blocks.count(problem.rank)};
  if (problem.size == 1) builder.copy(blocks.block(Region::kInput, 0), result);
  ring_reduce_scatter(builder, ring_place(problem.rank, problem.size), blocks, Region::kInput, false, result,
                      problem.segment_count);
  return builder.finish();
}

}  // namespace

extern const Algorithm ring = {
    .kind = OpKind::kReduceScatter,
    .name = "ring",
    .summary = "every block once around a ring of neighbours, summed on the way",
    .cost_formula = "(p-1) (a + n b + n g)",
    .pipelined = true,
    .cost = cost::vectors_summed,
    .build = build,
};

}  // namespace altorch::schedules::reduce_scatter
