// In round s each rank sends the block of the rank s further on straight to it: (p-1) (a + n b + n g). As
// many bytes as the ring, but nobody passes anything on, so that a late rank holds up no one's other blocks,
// and empty blocks are cheap. Sums are made in the order own, rank-1, rank-2, ...
#include <algorithm>
#include <optional>

#include "collectives/phases/blocks.h"
#include "collectives/phases/segments.h"
#include "collectives/schedule_builder.h"

namespace altorch::schedules::reduce_scatter {

Schedule pairwise(const Problem& problem) {
  ScheduleBuilder builder;
  const int rank = problem.rank, size = problem.size;
  const Blocks blocks(problem.input_counts, problem.count, size);
  const Slice own = blocks.block(Region::kInput, rank), result{Region::kOutput, 0, own.count};
  if (size == 1) {
    builder.copy(own, result);
    return builder.finish();
  }

  const Segments segments(blocks.largest(), problem.segment_count);
  // One segment is added while the next is received.
  const Slice arrived[2] = {builder.scratch(std::min(segments.length(), own.count)),
                            builder.scratch(std::min(segments.length(), own.count))};
  struct Addition {
    Slice sum, part, result;
  };
  std::optional<Addition> pending;
  int arrivals = 0;
  for (std::int64_t k = 0; k < segments.number(); ++k) {
    for (int distance = 1; distance < size; ++distance) {
      const int to = wrap(rank + distance, size);
      std::optional<Addition> next;
      if (const auto mine = segments.cut(own, k)) {
        const Slice slot = part(arrived[arrivals++ % 2], 0, mine->count);
        const Slice sum = *segments.cut(result, k);
        builder.receive(wrap(rank - distance, size), slot);
        next = Addition{distance == 1 ? *mine : sum, slot, sum};
      }
      if (const auto theirs = segments.cut(blocks.block(Region::kInput, to), k)) builder.send(to, *theirs);
      if (pending) builder.reduce(pending->part, pending->sum, pending->result);
      builder.end_round();
      pending = next;
    }
  }
  if (pending) builder.reduce(pending->part, pending->sum, pending->result);
  return builder.finish();
}

}  // namespace altorch::schedules::reduce_scatter
