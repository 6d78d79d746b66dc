// SPDX-License-Identifier: BSD-3-Clause
// Partners at distance 1, 2, 4, ... exchange all they have and add it: log2(p) (a + n b + n g), the
// fewest messages possible. Other numbers of ranks are folded to the power of two below, for 2
// messages more.
#include "collectives/cost.h"
#include "collectives/phases/fold.h"

namespace altorch::schedules::all_reduce {
namespace {

Schedule build(const Problem& problem) {
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

double cost_of(int p, double n, const CostModel& m) {
  return cost::floor_log2(p) * (m.alpha + n * (m.beta + m.gamma)) + cost::folding(p, n, m);
}

}  // namespace

extern const Algorithm recursive_doubling = {
    .kind = OpKind::kAllReduce,
    .name = "recursive_doubling",
    .summary = "partners at distance 1, 2, 4, ... exchange all they have; small vectors",
    .cost_formula = "log2(p) (a + n b + n g)",
    .cost = cost_of,
    .build = build,
};

}  // namespace altorch::schedules::all_reduce
