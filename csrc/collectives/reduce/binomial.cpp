// SPDX-License-Identifier: BSD-3-Clause
// The vectors go up a binomial tree and are added on the way: ceil(log2 p) (a + n b + n g).
//
// A rank adds the vector of one child while the next child's arrives.
#include <algorithm>
#include <cstddef>

#include "collectives/cost.h"
#include "collectives/phases/binomial_tree.h"
#include "collectives/schedule_builder.h"

namespace altorch::schedules::reduce {
namespace {

Schedule build(const Problem& problem) {
  ScheduleBuilder builder;
  const BinomialTree tree(problem.rank, problem.size, problem.root);
  const Slice own{Region::kInput, 0, problem.count}, result{Region::kOutput, 0, problem.count};
  const bool is_root = tree.parent < 0;
  if (tree.children.empty()) {
    if (is_root)
      builder.copy(own, result);
    else
      builder.send(tree.parent, own);
    return builder.finish();
  }

  const Slice sum = is_root ? result : builder.scratch(problem.count);
  Slice arrived[2];
  for (std::size_t i = 0; i < std::min<std::size_t>(tree.children.size(), 2); ++i) {
    arrived[i] = builder.scratch(problem.count);
  }
  // The smallest subtree first: it is ready first.
  for (std::size_t i = 0; i < tree.children.size(); ++i) {
    builder.receive(tree.children[tree.children.size() - 1 - i].rank, arrived[i % 2]);
    if (i > 0) builder.reduce(i == 1 ? own : sum, arrived[(i - 1) % 2], sum);
    builder.end_round();
  }
  const std::size_t last = tree.children.size() - 1;
  builder.reduce(last == 0 ? own : sum, arrived[last % 2], sum);
  builder.end_round();
  if (!is_root) builder.send(tree.parent, sum);
  return builder.finish();
}

double cost_of(int p, double n, const CostModel& m) {
  return cost::ceil_log2(p) * (m.alpha + n * (m.beta + m.gamma));
}

}  // namespace

extern const Algorithm binomial = {
    .kind = OpKind::kReduce,
    .name = "binomial",
    .summary = "up a binomial tree",
    .cost_formula = "ceil(log2 p) (a + n b + n g)",
    .cost = cost_of,
    .build = build,
};

}  // namespace altorch::schedules::reduce
