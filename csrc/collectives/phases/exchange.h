// SPDX-License-Identifier: BSD-3-Clause
// Everyone with everyone at once: what goes to a rank goes straight there. As many bytes as a ring carries,
// but nobody passes anything on, so a rank waits for its peers once where it waits p-1 times in a ring, and
// all parts of a result are at hand together.
#pragma once

#include <cstdint>

#include "collectives/phases/blocks.h"
#include "collectives/schedule_builder.h"

namespace altorch {

// Posts sent(to) to every other rank and received(from) from it. Partners in turns, so that no rank is
// everyone's first. The caller ends the round. (p-1) (a + n b).
template <class Sent, class Received>
void exchange(ScheduleBuilder& builder, int rank, int size, Sent sent, Received received) {
  for (int distance = 1; distance < size; ++distance) {
    const int to = wrap(rank + distance, size), from = wrap(rank - distance, size);
    builder.receive(from, received(from));
    builder.send(to, sent(to));
  }
}

// Where the part of rank `from` lies among those of the others, which lie side by side in rank order.
inline Slice part_from(const Slice& others, int from, int rank, std::int64_t count) {
  return part(others, (from < rank ? from : from - 1) * count, count);
}

// Every rank's part of block i goes to rank i, which combines the parts in rank order: the same bits as any
// other rank would get. The own block is combined into `result`, which may be the own part itself; `region`
// is only read. Blocks are cut into segments of `segment` elements at most (0: not cut): one is combined
// while the next is received. (p-1) (a + n/p b + n/p g) for a vector of n bytes in one segment.
void exchange_and_combine(ScheduleBuilder& builder, int rank, int size, const Blocks& blocks, Region region,
                          const Slice& result, std::int64_t segment);

}  // namespace altorch
