// SPDX-License-Identifier: BSD-3-Clause
// The root sends every block straight to its rank: (p-1) (a + n b), without scratch. For large
// blocks, and for blocks of which only the root knows the sizes.
#include "collectives/cost.h"
#include "collectives/phases/blocks.h"
#include "collectives/schedule_builder.h"

namespace altorch::schedules::scatter {
namespace {

Schedule build(const Problem& problem) {
  ScheduleBuilder builder;
  const Slice own{Region::kOutput, 0, block_count(problem.input_counts, problem.count, problem.rank)};
  if (problem.rank != problem.root) {
    builder.receive(problem.root, own);
    return builder.finish();
  }
  const Blocks blocks(problem.input_counts, problem.count, problem.size);
  for (int distance = 1; distance < problem.size; ++distance) {
    const int to = wrap(problem.root + distance, problem.size);
    builder.send(to, blocks.block(Region::kInput, to));
  }
  builder.copy(blocks.block(Region::kInput, problem.root), own);
  return builder.finish();
}

}  // namespace

extern const Algorithm linear = {
    .kind = OpKind::kScatter,
    .name = "linear",
    .summary = "every block straight from the root; large or uneven blocks",
    .cost_formula = "(p-1) (a + n b)",
    .cost = cost::one_after_another,
    .build = build,
};

}  // namespace altorch::schedules::scatter
