// Everyone sends all it has to everyone, and each rank combines the parts in rank order: (p-1) (a + n b + n
// g). One wait for the peers, which is what counts for small vectors among few ranks, above all where ranks
// share cores.
#include "collectives/phases/exchange.h"

namespace altorch::schedules::all_reduce {

Schedule one_shot(const Problem& problem) {
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

}  // namespace altorch::schedules::all_reduce
