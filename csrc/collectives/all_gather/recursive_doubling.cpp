// SPDX-License-Identifier: BSD-3-Clause
// Partners at distance 1, 2, 4, ... exchange all they have, which always lies side by side: log2(p)
// a + (p-1) n b without scratch. Other numbers of ranks are folded to the power of two below, which
// costs 2 messages more and, at the end, all blocks once more: bruck does without.
#include <algorithm>

#include "collectives/cost.h"
#include "collectives/phases/blocks.h"
#include "collectives/phases/fold.h"

namespace altorch::schedules::all_gather {
namespace {

Schedule build(const Problem& problem) {
  ScheduleBuilder builder;
  const int rank = problem.rank;
  const Blocks blocks(problem.output_counts, problem.count, problem.size);
  const Fold fold(problem.size);
  const Slice own{Region::kInput, 0, blocks.count(rank)};

  if (fold.is_guest(rank)) {
    builder.send(rank + 1, own);
  } else {
    builder.copy(own, blocks.block(Region::kOutput, rank));
    if (fold.is_host(rank)) builder.receive(rank - 1, blocks.block(Region::kOutput, rank - 1));
    builder.end_round();
    const auto blocks_of = [&](int first, int count) {
      return blocks.range(Region::kOutput, fold.first_rank(first), fold.first_rank(first + count));
    };
    const int member = fold.member_of(rank);
    for (int distance = 1; distance < fold.members(); distance *= 2) {
      const int partner = member ^ distance;
      builder.receive(fold.rank_of(partner), blocks_of(partner & ~(distance - 1), distance));
      builder.send(fold.rank_of(partner), blocks_of(member & ~(distance - 1), distance));
      builder.end_round();
    }
  }
  builder.end_round();
  unfold_vector(builder, fold, rank, blocks.range(Region::kOutput, 0, problem.size));
  return builder.finish();
}

double cost_of(int p, double n, const CostModel& m) {
  if (!cost::is_folded(p)) return cost::floor_log2(p) * m.alpha + (p - 1) * n * m.beta;
  // One block to the host, then in each round up to two blocks for every member, then all of them
  // back.
  const int members = 1 << cost::floor_log2(p);
  double blocks = 1 + p;
  for (int distance = 1; distance < members; distance *= 2) {
    blocks += distance + std::min(distance, p - members);
  }
  return (cost::floor_log2(p) + 2) * m.alpha + blocks * n * m.beta;
}

}  // namespace

extern const Algorithm recursive_doubling = {
    .kind = OpKind::kAllGather,
    .name = "recursive_doubling",
    .summary = "partners at distance 1, 2, 4, ... exchange all they have; small blocks, p = 2^k",
    .cost_formula = "log2(p) a + (p-1) n b",
    .cost = cost_of,
    .build = build,
};

}  // namespace altorch::schedules::all_gather
