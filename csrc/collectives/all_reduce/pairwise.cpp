// SPDX-License-Identifier: BSD-3-Clause
// Each rank receives the parts of its block from all ranks, combines them and sends the result to
// all other ranks: 2 (p-1) a + 2 (p-1)/p n b + (p-1)/p n g. As many bytes and messages as the ring,
// but two waits for the peers instead of 2 (p-1), and half types travel as they are and are rounded
// once. For large vectors.
#include "collectives/cost.h"
#include "collectives/phases/exchange.h"

namespace altorch::schedules::all_reduce {
namespace {

Schedule build(const Problem& problem) {
  ScheduleBuilder builder;
  const int rank = problem.rank, size = problem.size;
  const Blocks blocks = Blocks::balanced(problem.count, size);
  const Slice own = blocks.block(Region::kOutput, rank);
  exchange_and_combine(builder, rank, size, blocks, Region::kOutput, own, problem.segment_count);
  exchange(
      builder, rank, size, [&](int) { return own; },
      [&](int from) { return blocks.block(Region::kOutput, from); });
  return builder.finish();
}

}  // namespace

extern const Algorithm pairwise = {
    .kind = OpKind::kAllReduce,
    .name = "pairwise",
    .summary =
        "every block straight to its rank, its result straight to everyone; large vectors, few ranks, half "
        "types",
    .cost_formula = "2 (p-1) a + 2 (p-1)/p n b + (p-1)/p n g",
    .pipelined = true,
    .combines = true,
    .cost = cost::vector_by_blocks,
    .build = build,
};

}  // namespace altorch::schedules::all_reduce
