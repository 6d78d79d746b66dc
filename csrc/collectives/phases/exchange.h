// SPDX-License-Identifier: BSD-3-Clause
// Every rank exchanges data directly with every other rank, all at once. This moves as many bytes
// as a ring, but no rank forwards data. So a rank waits for its peers once, where it waits p-1
// times in a ring. It also has all parts of a result together.
#pragma once

#include <cstdint>

#include "collectives/phases/blocks.h"
#include "collectives/schedule_builder.h"

namespace altorch {

// Posts a send of sent(to) to every other rank, and a receive of received(from) from it. Each rank
// starts with a different partner, so that no rank is the first partner of all others. The caller
// ends the round. Cost: (p-1) (a + n b).
template <class Sent, class Received>
void exchange(ScheduleBuilder& builder, int rank, int size, Sent sent, Received received) {
  for (int distance = 1; distance < size; ++distance) {
    const int to = wrap(rank + distance, size), from = wrap(rank - distance, size);
    builder.receive(from, received(from));
    builder.send(to, sent(to));
  }
}

// The part of rank `from` within `others`, where the parts of all ranks but `rank` lie side by side
// in rank order.
inline Slice part_from(const Slice& others, int from, int rank, std::int64_t count) {
  return part(others, (from < rank ? from : from - 1) * count, count);
}

// Every rank sends its part of block i to rank i. Rank i combines the parts in rank order, so that
// any other rank would get the same bits. This rank combines its block into `result`, which may be
// its own part of the block; otherwise `region` is only read. Blocks are cut into segments of at
// most `segment` elements (0: not cut): one segment is combined while the next is received. Cost:
// (p-1) (a + n/p b + n/p g) for a vector of n bytes in one segment.
void exchange_and_combine(ScheduleBuilder& builder, int rank, int size, const Blocks& blocks, Region region,
                          const Slice& result, std::int64_t segment);

}  // namespace altorch
