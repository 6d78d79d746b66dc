// SPDX-License-Identifier: BSD-3-Clause
// The pinned memory through which the ranks of a window reach each other if their GPUs do not map
// each other's memory. It holds requests, and slots for data in flight:
//
//   shared by a node     pairs: every origin, lane, target                  | slots: every rank's lanes
//   of one rank (owner)  pairs: owner to each rank, then each rank to owner | slots: every rank's lanes
//
// If ranks share no memory, each has its own board, and their hosts exchange what changes
// (relayed_window.h).
//
// A rank has kLanes lanes, one for each stream that it uses at a time. A lane has slots for data
// and, for each target, numbered requests. Three flags hold the number of the last request that is
// there (`asked`), that has taken effect (`answered`), and that the rank's own streams are past
// (`passed`). Zero at first.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/flag.h"
#include "device/device.h"
#include "transports/window_request.h"

namespace altorch {

class StagedBoard {
 public:
  static constexpr int kLanes = 4;
  static constexpr std::size_t kSlots = 4;  // of a lane
  static constexpr std::size_t kSlotBytes = 256 << 10;
  static constexpr std::uint32_t kRequests = 64;  // in flight at once, for each lane and target

  struct alignas(64) Request {
    WindowRequest asked;
    std::uint64_t slot;  // of the origin's lane, with its data
    std::int64_t found;  // the answer to fetch_add and compare_swap
    std::uint32_t counted;
    std::uint32_t number;  // of the request itself
  };

  static constexpr int kShared = -1;
  // `owner`: the rank whose own board it is, or kShared.
  static std::size_t bytes(int ranks, int owner = kShared) {
    return pairs(ranks, owner) * sizeof(Pair) + index(ranks, 0) * kSlots * kSlotBytes;
  }
  StagedBoard(PinnedMemory memory, int ranks, int owner = kShared)
      : memory_(std::move(memory)), ranks_(ranks), owner_(owner) {}

  Flag& asked(int origin, int lane, int target) const { return pair(origin, lane, target).asked; }
  Flag& answered(int origin, int lane, int target) const { return pair(origin, lane, target).answered; }
  Flag& passed(int origin, int lane, int target) const { return pair(origin, lane, target).passed; }
  Request& request(int origin, int lane, int target, std::uint32_t number) const {
    return pair(origin, lane, target).requests[number % kRequests];
  }
  std::byte* slot(int origin, int lane, std::uint64_t slot) const {
    return memory_.get() + pairs(ranks_, owner_) * sizeof(Pair) +
           (index(origin, lane) * kSlots + slot) * kSlotBytes;
  }

 private:
  struct Pair {
    Flag asked, answered, passed;
    Request requests[kRequests];
  };
  static std::size_t index(int rank, int lane) {
    return static_cast<std::size_t>(rank) * kLanes + static_cast<std::size_t>(lane);
  }
  // An owner is the origin of the first half, and the target of the other.
  static std::size_t pairs(int ranks, int owner) {
    return index(ranks, 0) * (owner == kShared ? static_cast<std::size_t>(ranks) : 2);
  }
  Pair& pair(int origin, int lane, int target) const {
    return reinterpret_cast<Pair*>(memory_.get())[place(origin, lane, target)];
  }
  std::size_t place(int origin, int lane, int target) const {
    if (owner_ == kShared)
      return index(origin, lane) * static_cast<std::size_t>(ranks_) + static_cast<std::size_t>(target);
    return origin == owner_ ? index(target, lane) : index(ranks_, 0) + index(origin, lane);
  }

  const PinnedMemory memory_;
  const int ranks_, owner_;
};

}  // namespace altorch
