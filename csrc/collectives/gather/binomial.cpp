// SPDX-License-Identifier: BSD-3-Clause
// Blocks go up a binomial tree, each rank passing on all of its subtree at once: ceil(log2 p) a +
// (p-1) n b at the root. For small blocks; all of one size.
#include "collectives/cost.h"
#include "collectives/phases/subtree_blocks.h"

namespace altorch::schedules::gather {
namespace {

Schedule build(const Problem& problem) {
  ScheduleBuilder builder;
  const BinomialTree tree(problem.rank, problem.size, problem.root);
  const bool is_root = tree.parent < 0, is_leaf = tree.children.empty();
  const Slice own{Region::kInput, 0, problem.count};
  const Slice subtree = is_root || is_leaf ? own : builder.scratch(tree.subtree * problem.count);
  const SubtreeBlocks blocks(problem, tree, Region::kOutput, subtree);

  for (const auto& child : tree.children) {
    blocks.for_each_run(child.relative, child.subtree,
                        [&](const Slice& run) { builder.receive(child.rank, run); });
  }
  if (is_root) {
    builder.copy(own, {Region::kOutput, problem.root * problem.count, problem.count});
  } else {
    if (!is_leaf) builder.copy(own, part(subtree, 0, problem.count));
    builder.end_round();
    blocks.for_each_run(tree.relative, tree.subtree,
                        [&](const Slice& run) { builder.send(tree.parent, run); });
  }
  return builder.finish();
}

}  // namespace

extern const Algorithm binomial = {
    .kind = OpKind::kGather,
    .name = "binomial",
    .summary = "up a binomial tree, whole subtrees at once; small blocks",
    .cost_formula = "ceil(log2 p) a + (p-1) n b",
    .even_only = true,
    .cost = cost::tree_of_blocks,
    .build = build,
};

}  // namespace altorch::schedules::gather
