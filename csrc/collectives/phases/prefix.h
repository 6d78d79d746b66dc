// SPDX-License-Identifier: BSD-3-Clause
// The reduction of all ranks up to each, in log2(p) rounds (Hillis and Steele): a rank sends what
// it has to the rank at distance 1, 2, 4, ... above it, and adds what comes from as far below.
#pragma once

#include "collectives/schedule_builder.h"

namespace altorch {

// Among `members` ranks, of which this one is number `member`; member i is rank `first` + i.
// `vector` is reduced in place.
inline void prefix(ScheduleBuilder& builder, int member, int members, int first, const Slice& vector,
                   const Slice& arrived) {
  for (int distance = 1; distance < members; distance *= 2) {
    const bool adds = member >= distance;
    if (member + distance < members) builder.send(first + member + distance, vector);
    if (adds) builder.receive(first + member - distance, arrived);
    builder.end_round();
    if (adds) builder.reduce(arrived, vector, vector);
    builder.end_round();
  }
}

}  // namespace altorch
