// SPDX-License-Identifier: BSD-3-Clause
// Each block of the vector travels once around the ring to be summed, the sums once more to be
// known everywhere: 2 (p-1) a + 2 (p-1)/p n b + (p-1)/p n g. The fewest bytes, all of them between
// neighbours; for large vectors. Segments overlap the additions with the messages and keep scratch
// small.
//
// A block is summed in ring order, and once only, so all ranks end with the same bits.
#include "collectives/phases/ring.h"

#include "collectives/cost.h"

namespace altorch::schedules::all_reduce {
namespace {

Schedule build(const Problem& problem) {
  ScheduleBuilder builder;
  const Blocks blocks = Blocks::balanced(problem.count, problem.size);
  const RingPlace place = ring_place(problem.rank, problem.size);
  const Slice own = blocks.block(Region::kOutput, problem.rank);
  ring_reduce_scatter(builder, place, blocks, Region::kOutput, true, own, problem.segment_count);
  ring_all_gather(builder, place, blocks, Region::kOutput, own);
  return builder.finish();
}

}  // namespace

extern const Algorithm ring = {
    .kind = OpKind::kAllReduce,
    .name = "ring",
    .summary = "every block twice around a ring of neighbours; large vectors",
    .cost_formula = "2 (p-1) a + 2 (p-1)/p n b + (p-1)/p n g",
    .pipelined = true,
    .cost = cost::vector_by_blocks,
    .build = build,
};

}  // namespace altorch::schedules::all_reduce
