// SPDX-License-Identifier: BSD-3-Clause
// Every rank sends its part of a block straight to the block's rank, which combines the parts in
// rank order: (p-1) (a + n b + n g). This moves as many bytes as the ring, but no rank forwards
// data. So a straggler delays only the parts that it sends itself, and empty blocks are cheap. Half
// types travel as they are and are rounded once.
#include "collectives/cost.h"
#include "collectives/phases/exchange.h"

namespace altorch::schedules::reduce_scatter {
namespace {

Schedule build(const Problem& problem) {
  ScheduleBuilder builder;
  const int rank = problem.rank, size = problem.size;
  const Blocks blocks(problem.input_counts, problem.count, size);
  const Slice result{Region::kOutput, 0, blocks.count(rank)};
  if (size == 1) builder.copy(blocks.block(Region::kInput, 0), result);
  exchange_and_combine(builder, rank, size, blocks, Region::kInput, result, problem.segment_count);
  return builder.finish();
}

}  // namespace

extern const Algorithm pairwise = {
    .kind = OpKind::kReduceScatter,
    .name = "pairwise",
    .summary = "every block straight to its rank, which combines the parts in one step",
    .cost_formula = "(p-1) (a + n b + n g)",
    .pipelined = true,
    .combines = true,
    .cost = cost::vectors_summed,
    .build = build,
};

}  // namespace altorch::schedules::reduce_scatter
