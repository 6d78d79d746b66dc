// SPDX-License-Identifier: BSD-3-Clause
// Every block straight to its rank, all at once: (p-1) (a + n b) without scratch, one wait for the
// peers. For few ranks: among many, p-1 messages at a time to one rank are too many for the
// network.
#include "collectives/cost.h"
#include "collectives/phases/exchange.h"

namespace altorch::schedules::all_to_all {
namespace {

Schedule build(const Problem& problem) {
  ScheduleBuilder builder;
  const int rank = problem.rank, size = problem.size;
  const Blocks sent(problem.input_counts, problem.count, size),
      received(problem.output_counts, problem.count, size);
  exchange(
      builder, rank, size, [&](int to) { return sent.block(Region::kInput, to); },
      [&](int from) { return received.block(Region::kOutput, from); });
  builder.copy(sent.block(Region::kInput, rank), received.block(Region::kOutput, rank));
  return builder.finish();
}

}  // namespace

extern const Algorithm linear = {
    .kind = OpKind::kAllToAll,
    .name = "linear",
    .summary = "every block straight to its rank, all at once; few ranks",
    .cost_formula = "(p-1) (a + n b)",
    .cost = cost::one_after_another,
    .build = build,
};

}  // namespace altorch::schedules::all_to_all
