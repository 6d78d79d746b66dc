// SPDX-License-Identifier: BSD-3-Clause
// The two halves of the ring algorithms. In both a rank only ever sends to the next rank and
// receives from the last.
#pragma once

#include <cstdint>

#include "collectives/phases/blocks.h"
#include "collectives/schedule_builder.h"

namespace altorch {

// A rank's place in a ring of `size`: `index` counts along the ring, `left` and `right` are ranks
// in the group.
struct RingPlace {
  int index, size, left, right;
};
inline RingPlace ring_place(int rank, int size) {
  return {rank, size, wrap(rank - 1, size), wrap(rank + 1, size)};
}

// Block i travels from rank i+1 around to rank i, each rank on the way adds its own part. In the
// end rank i holds the sum of block i, in `result` (which may be the block itself).
//   in_place  Partial sums overwrite the rank's own blocks of `region`; otherwise `region` is only read.
// Blocks are cut into segments of `segment` elements (0: not cut), of which two are on their way at
// a time: one is added while the next is received. Scratch: 2 segments in place, 4 otherwise; half
// of that when nothing is cut. (p-1) (a + n/p b + n/p g) for a vector of n bytes in one segment.
void ring_reduce_scatter(ScheduleBuilder& builder, const RingPlace& place, const Blocks& blocks,
                         Region region, bool in_place, const Slice& result, std::int64_t segment);

// Every rank's own block of `region` goes once around the ring. `own` is where that block lies at
// first: usually the block itself, else (all_gather's Input) it is sent from there. (p-1) (a + n/p
// b).
void ring_all_gather(ScheduleBuilder& builder, const RingPlace& place, const Blocks& blocks, Region region,
                     const Slice& own);

}  // namespace altorch
