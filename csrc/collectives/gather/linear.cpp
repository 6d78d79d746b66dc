// SPDX-License-Identifier: BSD-3-Clause
// Every rank sends its block straight to the root: (p-1) (a + n b), without scratch. For large
// blocks, and for blocks of which only the root knows the sizes.
#include "collectives/cost.h"
#include "collectives/phases/blocks.h"
#include "collectives/schedule_builder.h"

namespace altorch::schedules::gather {
namespace {

Schedule build(const Problem& problem) {
  ScheduleBuilder builder;
  const Slice own{Region::kInput, 0, block_count(problem.output_counts, problem.count, problem.rank)};
  if (problem.rank != problem.root) {
    builder.send(problem.root, own);
    return builder.finish();
  }
  const Blocks blocks(problem.output_counts, problem.count, problem.size);
  for (int distance = 1; distance < problem.size; ++distance) {
    const int from = wrap(problem.root + distance, problem.size);
    builder.receive(from, blocks.block(Region::kOutput, from));
  }
  builder.copy(own, blocks.block(Region::kOutput, problem.root));
  return builder.finish();
}

}  // namespace

extern const Algorithm linear = {
    .kind = OpKind::kGather,
    .name = "linear",
    .summary = "every block straight to the root; large or uneven blocks",
    .cost_formula = "(p-1) (a + n b)",
    .cost = cost::one_after_another,
    .build = build,
};

}  // namespace altorch::schedules::gather
