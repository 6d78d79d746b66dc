// SPDX-License-Identifier: BSD-3-Clause
// Each rank receives the parts of its block from all ranks, combines them and sends the result to
// the root: 2 (p-1) a + 2 (p-1)/p n b + (p-1)/p n g. The root receives two vectors instead of log2
// p, and the additions are spread over all ranks; half types travel as they are and are rounded
// once. For large vectors.
#include "collectives/cost.h"
#include "collectives/phases/exchange.h"

namespace altorch::schedules::reduce {
namespace {

Schedule build(const Problem& problem) {
  ScheduleBuilder builder;
  const int rank = problem.rank, size = problem.size, root = problem.root;
  const Blocks blocks = Blocks::balanced(problem.count, size);
  if (size == 1) builder.copy(blocks.block(Region::kInput, 0), blocks.block(Region::kOutput, 0));
  const Slice result =
      rank == root ? blocks.block(Region::kOutput, rank) : builder.scratch(blocks.count(rank));
  exchange_and_combine(builder, rank, size, blocks, Region::kInput, result, problem.segment_count);
  if (rank != root) builder.send(root, result);
  if (rank == root) {
    for (int distance = 1; distance < size; ++distance) {
      const int from = wrap(rank + distance, size);
      builder.receive(from, blocks.block(Region::kOutput, from));
    }
  }
  return builder.finish();
}

}  // namespace

extern const Algorithm pairwise = {
    .kind = OpKind::kReduce,
    .name = "pairwise",
    .summary = "every block straight to its rank, its result straight to the root; large vectors",
    .cost_formula = "2 (p-1) a + 2 (p-1)/p n b + (p-1)/p n g",
    .combines = true,
    .cost = cost::vector_by_blocks,
    .build = build,
};

}  // namespace altorch::schedules::reduce
