// SPDX-License-Identifier: BSD-3-Clause
// The root sends one block to each rank, which sends it on to all ranks but the root: 2 (p-1) (a +
// n/p b), two waits. The root sends each other rank's block once, and its own block to all p-1
// ranks. For large vectors among few ranks.
#include "collectives/cost.h"
#include "collectives/phases/exchange.h"

namespace altorch::schedules::broadcast {
namespace {

Schedule build(const Problem& problem) {
  ScheduleBuilder builder;
  const int rank = problem.rank, size = problem.size, root = problem.root;
  const Blocks blocks = Blocks::balanced(problem.count, size);
  const auto block = [&](int i) { return blocks.block(Region::kOutput, i); };
  if (rank != root) builder.receive(root, block(rank));
  for (int distance = 1; rank == root && distance < size; ++distance) {
    const int to = wrap(root + distance, size);
    builder.send(to, block(to));
  }
  builder.end_round();
  // The root has everything: it only sends its own block.
  for (int distance = 1; distance < size; ++distance) {
    const int to = wrap(rank + distance, size), from = wrap(rank - distance, size);
    if (rank != root) builder.receive(from, block(from));
    if (to != root) builder.send(to, block(rank));
  }
  return builder.finish();
}

double cost_of(int p, double n, const CostModel& m) { return 2 * cost::one_after_another(p, n / p, m); }

}  // namespace

extern const Algorithm pairwise = {
    .kind = OpKind::kBroadcast,
    .name = "pairwise",
    .summary = "one block straight to each rank, from there straight to everyone; large vectors, few ranks",
    .cost_formula = "2 (p-1) a + 2 (p-1)/p n b",
    .cost = cost_of,
    .build = build,
};

}  // namespace altorch::schedules::broadcast
