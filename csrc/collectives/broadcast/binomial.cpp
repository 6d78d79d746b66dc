// SPDX-License-Identifier: BSD-3-Clause
// The vector goes down a binomial tree: ceil(log2 p) (a + n b). For small vectors.
#include "collectives/cost.h"
#include "collectives/phases/binomial_tree.h"
#include "collectives/schedule_builder.h"

namespace altorch::schedules::broadcast {
namespace {

Schedule build(const Problem& problem) {
  ScheduleBuilder builder;
  const Slice vector{Region::kOutput, 0, problem.count};
  const BinomialTree tree(problem.rank, problem.size, problem.root);
  if (tree.parent >= 0) builder.receive(tree.parent, vector);
  builder.end_round();
  for (const auto& child : tree.children) builder.send(child.rank, vector);
  return builder.finish();
}

double cost_of(int p, double n, const CostModel& m) { return cost::ceil_log2(p) * (m.alpha + n * m.beta); }

}  // namespace

extern const Algorithm binomial = {
    .kind = OpKind::kBroadcast,
    .name = "binomial",
    .summary = "down a binomial tree; small vectors",
    .cost_formula = "ceil(log2 p) (a + n b)",
    .cost = cost_of,
    .build = build,
};

}  // namespace altorch::schedules::broadcast
