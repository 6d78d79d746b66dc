// The vector is scattered down a binomial tree, one block to each rank, then gathered around a ring:
// (ceil(log2 p) + p-1) a + 2 (p-1)/p n b. For large vectors: the root sends the vector once, not log2(p)
// times.
//
// Blocks and ring count from the root, so that each rank receives its blocks where they belong.
#include "collectives/phases/binomial_tree.h"
#include "collectives/phases/ring.h"

namespace altorch::schedules::broadcast {

Schedule scatter_all_gather(const Problem& problem) {
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

}  // namespace altorch::schedules::broadcast
