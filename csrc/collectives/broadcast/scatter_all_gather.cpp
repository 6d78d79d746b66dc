// SPDX-License-Identifier: BSD-3-Clause
// The vector is scattered down a binomial tree, one block to each rank, then gathered around a
// ring: (ceil(log2 p) + p-1) a + 2 (p-1)/p n b. For large vectors: the root sends the vector once,
// not log2(p) times.
//
// Blocks and ring count from the root, so that each rank receives its blocks where they belong.
#include "collectives/cost.h"
#include "collectives/phases/binomial_tree.h"
#include "collectives/phases/ring.h"

namespace altorch::schedules::broadcast {
namespace {

Schedule build(const Problem& problem) {
  ScheduleBuilder builder;
  const Blocks blocks = Blocks::balanced(problem.count, problem.size);
  const BinomialTree tree(problem.rank, problem.size, problem.root);
  const auto blocks_of = [&](int first, int count) {
    return blocks.range(Region::kOutput, first, first + count);
  };
  if (tree.parent >= 0) builder.receive(tree.parent, blocks_of(tree.relative, tree.subtree));
  builder.end_round();
  for (const auto& child : tree.children) builder.send(child.rank, blocks_of(child.relative, child.subtree));
  builder.end_round();

  RingPlace place = ring_place(problem.rank, problem.size);
  place.index = tree.relative;
  ring_all_gather(builder, place, blocks, Region::kOutput, blocks.block(Region::kOutput, tree.relative));
  return builder.finish();
}

double cost_of(int p, double n, const CostModel& m) {
  return (cost::ceil_log2(p) + p - 1) * m.alpha + 2.0 * (p - 1) / p * n * m.beta;
}

}  // namespace

extern const Algorithm scatter_all_gather = {
    .kind = OpKind::kBroadcast,
    .name = "scatter_all_gather",
    .summary = "one block to each rank down a tree, then around a ring; large vectors",
    .cost_formula = "(ceil(log2 p) + p-1) a + 2 (p-1)/p n b",
    .cost = cost_of,
    .build = build,
};

}  // namespace altorch::schedules::broadcast
