// SPDX-License-Identifier: BSD-3-Clause
// In round k, rank r tells rank r+2^k (mod p). So after ceil(log2 p) rounds every rank has heard of
// every other rank: ceil(log2 p) a.
#include "collectives/cost.h"
#include "collectives/phases/blocks.h"
#include "collectives/schedule_builder.h"

namespace altorch::schedules::barrier {
namespace {

Schedule build(const Problem& problem) {
  ScheduleBuilder builder;
  for (int distance = 1; distance < problem.size; distance *= 2) {
    builder.receive(wrap(problem.rank - distance, problem.size), {});
    builder.send(wrap(problem.rank + distance, problem.size), {});
    builder.end_round();
  }
  return builder.finish();
}

double cost_of(int p, double, const CostModel& m) { return cost::ceil_log2(p) * m.alpha; }

}  // namespace

extern const Algorithm dissemination = {
    .kind = OpKind::kBarrier,
    .name = "dissemination",
    .summary = "in round k each rank tells the one 2^k further on",
    .cost_formula = "ceil(log2 p) a",
    .cost = cost_of,
    .build = build,
};

}  // namespace altorch::schedules::barrier
