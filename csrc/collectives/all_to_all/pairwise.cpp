// SPDX-License-Identifier: BSD-3-Clause
// In round s, rank r sends to rank r+s and receives from rank r-s (mod p): (p-1) (a + n b), without
// scratch. In each round all ranks have different partners. For large blocks, and for blocks of
// different sizes.
#include "collectives/cost.h"
#include "collectives/phases/blocks.h"
#include "collectives/schedule_builder.h"

namespace altorch::schedules::all_to_all {
namespace {

Schedule build(const Problem& problem) {
  ScheduleBuilder builder;
  const int rank = problem.rank, size = problem.size;
  const Blocks sent(problem.input_counts, problem.count, size),
      received(problem.output_counts, problem.count, size);
  builder.copy(sent.block(Region::kInput, rank), received.block(Region::kOutput, rank));
  for (int distance = 1; distance < size; ++distance) {
    const int to = wrap(rank + distance, size), from = wrap(rank - distance, size);
    builder.receive(from, received.block(Region::kOutput, from));
    builder.send(to, sent.block(Region::kInput, to));
    builder.end_round();
  }
  return builder.finish();
}

}  // namespace

extern const Algorithm pairwise = {
    .kind = OpKind::kAllToAll,
    .name = "pairwise",
    .summary = "every block straight to its rank, a different partner in each round; large blocks",
    .cost_formula = "(p-1) (a + n b)",
    .cost = cost::one_after_another,
    .build = build,
};

}  // namespace altorch::schedules::all_to_all
