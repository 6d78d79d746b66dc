// Everyone tells everyone: (p-1) a, one wait for the peers. For few ranks.
#include "collectives/phases/exchange.h"

namespace altorch::schedules::barrier {

Schedule linear(const Problem& problem) {
  ScheduleBuilder builder;
  const Slice nothing;
  exchange(
      builder, problem.rank, problem.size, [&](int) { return nothing; }, [&](int) { return nothing; });
  return builder.finish();
}

}  // namespace altorch::schedules::barrier
