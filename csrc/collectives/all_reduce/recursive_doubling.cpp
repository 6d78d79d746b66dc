// Partners at distance 1, 2, 4, ... exchange all they have and add it: log2(p) (a + n b + n g), the fewest
// messages possible. Other numbers of ranks are folded to the power of two below, for 2 messages more.
#include "collectives/phases/fold.h"

namespace altorch::schedules::all_reduce {

Schedule recursive_doubling(const Problem& problem) {
  ScheduleBuilder builder;
  const Fold fold(problem.size);
  const int rank = problem.rank;
  const Slice vector{Region::kOutput, 0, problem.count};
  const bool adds = problem.size > 1 && !fold.is_guest(rank);
  const Slice arrived = builder.scratch(adds ? problem.count : 0);

  fold_vector(builder, fold, rank, vector, arrived);
  if (!fold.is_guest(rank)) {
    const int member = fold.member_of(rank);
    for (int distance = 1; distance < fold.members(); distance *= 2) {
      const int partner = member ^ distance;
      builder.receive(fold.rank_of(partner), arrived);
      builder.send(fold.rank_of(partner), vector);
      builder.end_round();
      if (partner < member) {
        builder.reduce(arrived, vector, vector);
      } else {
        builder.reduce(vector, arrived, vector);
      }
      builder.end_round();
    }
  }
  unfold_vector(builder, fold, rank, vector);
  return builder.finish();
}

}  // namespace altorch::schedules::all_reduce
