// SPDX-License-Identifier: BSD-3-Clause
// docs/extending.md, "An algorithm": an all_gather by way of rank 0, as the page has it, and its
// proof.
#include "collectives/algorithm.h"

#include <gtest/gtest.h>

#include "collectives/cost.h"
#include "collectives/phases/blocks.h"
#include "collectives/proof.h"
#include "collectives/schedule_builder.h"

namespace altorch::schedules::all_gather {
namespace {

// [algorithm]
Schedule build(const Problem& problem) {
  ScheduleBuilder builder;
  const Blocks blocks(problem.output_counts, problem.count, problem.size);
  const Slice own{Region::kInput, 0, blocks.count(problem.rank)};
  const Slice all = blocks.range(Region::kOutput, 0, problem.size);
  builder.copy(own, blocks.block(Region::kOutput, problem.rank));
  for (int peer = 1; peer < problem.size; ++peer) {
    if (problem.rank == 0) builder.receive(peer, blocks.block(Region::kOutput, peer));
    if (problem.rank == peer) builder.send(0, own);
  }
  builder.end_round();
  for (int peer = 1; peer < problem.size; ++peer) {
    if (problem.rank == 0) builder.send(peer, all);
    if (problem.rank == peer) builder.receive(0, all);
  }
  return builder.finish();
}

constexpr Algorithm star = {
    .kind = OpKind::kAllGather,
    .name = "star",
    .summary = "everything to rank 0, and from there to everyone",
    .cost_formula = "2 (p-1) a + (p-1) (p+1) n b",
    .cost = [](int p, double n,
               const CostModel& m) { return (p - 1) * (2 * m.alpha + (p + 1) * n * m.beta); },
    .build = build,
};
// [algorithm]

TEST(Extending, AnAlgorithm) { proof::prove(star); }

}  // namespace
}  // namespace altorch::schedules::all_gather
