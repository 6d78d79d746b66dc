// SPDX-License-Identifier: BSD-3-Clause
// Every rank sends its block straight to all other ranks: (p-1) (a + n b) without scratch, one wait
// for the peers. For few ranks.
#include "collectives/cost.h"
#include "collectives/phases/exchange.h"

namespace altorch::schedules::all_gather {
namespace {

Schedule build(const Problem& problem) {
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

}  // namespace

extern const Algorithm linear = {
    .kind = OpKind::kAllGather,
    .name = "linear",
    .summary = "every block straight to everyone; few ranks",
    .cost_formula = "(p-1) (a + n b)",
    .cost = cost::one_after_another,
    .build = build,
};

}  // namespace altorch::schedules::all_gather
