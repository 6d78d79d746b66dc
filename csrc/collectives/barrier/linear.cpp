// SPDX-License-Identifier: BSD-3-Clause
// Every rank tells every other rank: (p-1) a, one wait for the peers. For few ranks.
#include "collectives/cost.h"
#include "collectives/phases/exchange.h"

namespace altorch::schedules::barrier {
namespace {

Schedule build(const Problem& problem) {
  ScheduleBuilder builder;
  const Slice nothing;
  exchange(
      builder, problem.rank, problem.size, [&](int) { return nothing; }, [&](int) { return nothing; });
  return builder.finish();
}

}  // namespace

extern const Algorithm linear = {
    .kind = OpKind::kBarrier,
    .name = "linear",
    .summary = "everyone tells everyone; few ranks",
    .cost_formula = "(p-1) a",
    .cost = cost::one_after_another,
    .build = build,
};

}  // namespace altorch::schedules::barrier
