// SPDX-License-Identifier: BSD-3-Clause
// Writes a Schedule round by round; what every algorithm is written with.
//
//   ScheduleBuilder builder;
//   const Slice arrived = builder.scratch(count);
//   builder.receive(peer, arrived);
//   builder.send(peer, mine);
//   builder.end_round();                   // from here on `arrived` may be read
//   builder.reduce(mine, arrived, mine);
//   return builder.finish();
#pragma once

#include <cstdint>
#include <vector>

#include "collectives/schedule.h"

namespace altorch {

class ScheduleBuilder {
 public:
  // Reserves elements of the scratch region.
  Slice scratch(std::int64_t count);

  // Messages of the open round. Empty ones are sent too: both sides must agree on their number.
  void send(int peer, const Slice& from);
  void receive(int peer, const Slice& into);

  // Local steps of the open round: they run while its messages fly. Empty ones are dropped.
  void copy(const Slice& from, const Slice& to);
  void reduce(const Slice& lower, const Slice& upper, const Slice& result);
  // `own` stands at `place` among the parts that lie side by side in `others`.
  void combine(const Slice& others, const Slice& own, int place, const Slice& result);

  // Closes the open round; nothing happens when it is empty.
  void end_round();
  // Closes the last round and hands the schedule over.
  Schedule finish();

 private:
  Schedule schedule_;
  std::vector<Step> locals_;  // of the open round: they follow its messages
  std::uint32_t round_begin_ = 0;
};

// `count` elements of `slice`, starting `offset` elements into it.
inline Slice part(const Slice& slice, std::int64_t offset, std::int64_t count) {
  return {slice.region, slice.offset + offset, count};
}

}  // namespace altorch
