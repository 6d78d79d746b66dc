// In round k each rank tells the one 2^k further on, so that after ceil(log2 p) rounds everyone has heard of
// everyone: ceil(log2 p) a.
#include "collectives/phases/blocks.h"
#include "collectives/schedule_builder.h"

namespace altorch::schedules::barrier {

Schedule dissemination(const Problem& problem) {
  ScheduleBuilder builder;
  for (int distance = 1; distance < problem.size; distance *= 2) {
    builder.receive(wrap(problem.rank - distance, problem.size), {});
    builder.send(wrap(problem.rank + distance, problem.size), {});
    builder.end_round();
  }
  return builder.finish();
}

}  // namespace altorch::schedules::barrier
