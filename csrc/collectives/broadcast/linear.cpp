// The root sends to everyone: (p-1) (a + n b), one wait. For small vectors among few ranks.
#include "collectives/phases/blocks.h"
#include "collectives/schedule_builder.h"

namespace altorch::schedules::broadcast {

Schedule linear(const Problem& problem) {
  ScheduleBuilder builder;
  const Slice vector{Region::kOutput, 0, problem.count};
  if (problem.rank != problem.root) builder.receive(problem.root, vector);
  for (int distance = 1; problem.rank == problem.root && distance < problem.size; ++distance) {
    builder.send(wrap(problem.root + distance, problem.size), vector);
  }
  return builder.finish();
}

}  // namespace altorch::schedules::broadcast
