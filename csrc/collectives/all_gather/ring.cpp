// Every block goes once around the ring: (p-1) (a + n b), all of it between neighbours. For large blocks.
#include "collectives/phases/ring.h"

namespace altorch::schedules::all_gather {

Schedule ring(const Problem& problem) {
  ScheduleBuilder builder;
  const Blocks blocks(problem.output_counts, problem.count, problem.size);
  const Slice own{Region::kInput, 0, blocks.count(problem.rank)};
  builder.copy(own, blocks.block(Region::kOutput, problem.rank));
  ring_all_gather(builder, ring_place(problem.rank, problem.size), blocks, Region::kOutput, own);
  return builder.finish();
}

}  // namespace altorch::schedules::all_gather
