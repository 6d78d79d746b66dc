// The vector goes down a binomial tree: ceil(log2 p) (a + n b). For small vectors.
#include "collectives/phases/binomial_tree.h"
#include "collectives/schedule_builder.h"

namespace altorch::schedules::broadcast {

Schedule binomial(const Problem& problem) {
  ScheduleBuilder builder;
  const Slice vector{Region::kOutput, 0, problem.count};
  const BinomialTree tree(problem.rank, problem.size, problem.root);
  if (tree.parent >= 0) builder.receive(tree.parent, vector);
  builder.end_round();
  for (const auto& child : tree.children) builder.send(child.rank, vector);
  return builder.finish();
}

}  // namespace altorch::schedules::broadcast
