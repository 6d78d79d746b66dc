// SPDX-License-Identifier: BSD-3-Clause
// Bruck's algorithm: what a rank has doubles in every round, whatever the number of ranks:
// ceil(log2 p) a + (p-1) n b, at the price of scratch for all blocks and one copy of them. For
// small blocks.
//
// Rank r collects the blocks r, r+1, ... (mod p) in this order, so that every message is one run of
// memory.
#include <algorithm>

#include "collectives/cost.h"
#include "collectives/phases/blocks.h"
#include "collectives/schedule_builder.h"

namespace altorch::schedules::all_gather {
namespace {

Schedule build(const Problem& problem) {
  ScheduleBuilder builder;
  const int rank = problem.rank, size = problem.size;
  const Blocks blocks(problem.output_counts, problem.count, size);
  const Slice own{Region::kInput, 0, blocks.count(rank)};
  if (size == 1) {
    builder.copy(own, blocks.block(Region::kOutput, 0));
    return builder.finish();
  }

  const std::int64_t total = blocks.offset(size);
  const Slice collected = builder.scratch(total);
  // Elements of the first `n` blocks from block `first` on, around the end.
  const auto run = [&](int first, int n) {
    return first + n <= size ? blocks.offset(first + n) - blocks.offset(first)
                             : total - blocks.offset(first) + blocks.offset(first + n - size);
  };
  builder.copy(own, part(collected, 0, own.count));
  builder.end_round();
  for (int have = 1; have < size; have *= 2) {
    const int more = std::min(have, size - have);
    const int from = wrap(rank + have, size);
    builder.receive(from, part(collected, run(rank, have), run(from, more)));
    builder.send(wrap(rank - have, size), part(collected, 0, run(rank, more)));
    builder.end_round();
  }
  const std::int64_t before = blocks.offset(rank);  // of the blocks that stand before the own one
  builder.copy(part(collected, 0, total - before), {Region::kOutput, before, total - before});
  builder.copy(part(collected, total - before, before), {Region::kOutput, 0, before});
  return builder.finish();
}

double cost_of(int p, double n, const CostModel& m) {
  return cost::ceil_log2(p) * m.alpha + (p - 1) * n * m.beta;
}

}  // namespace

extern const Algorithm bruck = {
    .kind = OpKind::kAllGather,
    .name = "bruck",
    .summary = "what a rank has doubles in every round; small blocks, any p",
    .cost_formula = "ceil(log2 p) a + (p-1) n b",
    .cost = cost_of,
    .build = build,
};

}  // namespace altorch::schedules::all_gather
