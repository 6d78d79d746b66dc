// SPDX-License-Identifier: BSD-3-Clause
#include "collectives/phases/ring.h"

#include <algorithm>
#include <optional>

#include "collectives/phases/segments.h"

namespace altorch {
namespace {

struct Addition {
  Slice partial, own, sum;
};

class RingReduceScatter {
 public:
  RingReduceScatter(ScheduleBuilder& builder, const RingPlace& place, const Blocks& blocks, Region region,
                    bool in_place, const Slice& result, std::int64_t segment)
      : builder_(builder),
        place_(place),
        blocks_(blocks),
        region_(region),
        in_place_(in_place),
        result_(result),
        segments_(blocks.largest(), segment) {
    for (int lane = 0; lane < std::min<std::int64_t>(segments_.number(), 2); ++lane) {
      arrived_[lane] = builder_.scratch(segments_.length());
      if (!in_place_ && place_.size > 2) travelling_[lane] = builder_.scratch(segments_.length());
    }
  }

  void build() {
    for (std::int64_t first = 0; first < segments_.number(); first += 2) {
      const int lanes = first + 1 < segments_.number() ? 2 : 1;
      for (int step = 0; step < place_.size - 1; ++step) {
        for (int lane = 0; lane < lanes; ++lane) {
          // With two lanes the sum that is sent next is one round old; with one it is not made yet.
          if (lanes == 1) add_pending();
          post(step, first + lane, lane);
        }
      }
    }
    add_pending();
  }

 private:
  // One round: passes the segment on, receives the same segment of the next block, adds what came
  // before.
  void post(int step, std::int64_t k, int lane) {
    if (const auto sent = sum_of(step - 1, k, lane)) builder_.send(place_.right, *sent);
    std::optional<Addition> next;
    if (const auto own = segments_.cut(own_block(step), k)) {
      const Slice partial = part(arrived_[arrival_ % 2], 0, own->count);
      builder_.receive(place_.left, partial);
      next = Addition{partial, *own, *sum_of(step, k, lane)};
    }
    if (segments_.number() > 1) ++arrival_;
    if (pending_) builder_.reduce(pending_->partial, pending_->own, pending_->sum);
    builder_.end_round();
    pending_ = next;
  }

  void add_pending() {
    if (pending_) builder_.reduce(pending_->partial, pending_->own, pending_->sum);
    builder_.end_round();
    pending_.reset();
  }

  // This rank's part of the block that it receives in `step`, which it passes on in the next.
  Slice own_block(int step) const {
    return blocks_.block(region_, wrap(place_.index - 2 - step, place_.size));
  }

  // Where segment k of that block is summed up. Step -1: nothing has been added yet.
  std::optional<Slice> sum_of(int step, std::int64_t k, int lane) const {
    const auto own = segments_.cut(own_block(step), k);
    if (!own || step < 0) return own;
    if (step == place_.size - 2) return segments_.cut(result_, k);
    return in_place_ ? *own : part(travelling_[lane], 0, own->count);
  }

  ScheduleBuilder& builder_;
  const RingPlace place_;
  const Blocks& blocks_;
  const Region region_;
  const bool in_place_;
  const Slice result_;
  const Segments segments_;
  Slice arrived_[2], travelling_[2];
  int arrival_ = 0;
  std::optional<Addition> pending_;
};

}  // namespace

void ring_reduce_scatter(ScheduleBuilder& builder, const RingPlace& place, const Blocks& blocks,
                         Region region, bool in_place, const Slice& result, std::int64_t segment) {
  if (place.size > 1) RingReduceScatter(builder, place, blocks, region, in_place, result, segment).build();
}

void ring_all_gather(ScheduleBuilder& builder, const RingPlace& place, const Blocks& blocks, Region region,
                     const Slice& own) {
  for (int step = 0; step < place.size - 1; ++step) {
    builder.receive(place.left, blocks.block(region, wrap(place.index - step - 1, place.size)));
    builder.send(place.right, step == 0 ? own : blocks.block(region, wrap(place.index - step, place.size)));
    builder.end_round();
  }
}

}  // namespace altorch
