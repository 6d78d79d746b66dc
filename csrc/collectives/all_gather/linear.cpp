// Every block straight to everyone: (p-1) (a + n b) without scratch, one wait for the peers. For few ranks.
#include "collectives/phases/exchange.h"

namespace altorch::schedules::all_gather {

Schedule linear(const Problem& problem) {
  ScheduleBuilder builder;
  const int rank = problem.rank;
  const Blocks blocks(problem.output_counts, problem.count, problem.size);
  const Slice own{Region::kInput, 0, blocks.count(rank)};
  exchange(
      builder, rank, problem.size, [&](int) { return own; },
      [&](int from) { return blocks.block(Region::kOutput, from); });
  builder.copy(own, blocks.block(Region::kOutput, rank));
  return builder.finish();
}

}  // namespace altorch::schedules::all_gather
