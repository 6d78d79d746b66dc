// SPDX-License-Identifier: BSD-3-Clause
// Results on their way from where a carrier leaves them to where the GPU takes them, both in one slot. The host
// copies them, or leaves the mark of a call that was given up (poison_of()): no transport writes to the second
// place, not even one that could not withdraw what it had begun.
//
// A kernel marks what is too large for that (poison_guard.h). Where processes share a GPU, a kernel makes them take
// turns on it: an all_reduce of 1 KiB took 277 us instead of 35 (H200).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "engine/host_staged/pieces.h"

namespace altorch {

class Handover {
 public:
  // Larger results are not worth the copy.
  static constexpr std::size_t kMost = 512 << 10;

  // Of nothing.
  Handover() = default;
  // Whether results of so many bytes, behind `used` bytes of a slot, can be handed over in it.
  static bool fits(std::size_t used, std::size_t results, std::size_t slot_bytes);
  // Of `outputs`, whose host side becomes the second place, from `place` on. `poison`: poison_of() their type.
  // `former`: opens when nobody takes anything more from there that an earlier use of the slot has left.
  Handover(std::span<PieceCopy> outputs, std::byte* place, std::uint64_t poison, Gate former = {});

  // On the host, before the GPU is told to take them.
  void succeed() const;
  // Leaves no mark while an earlier call's result, which may be good, is still to be taken from there.
  void give_up() const;

 private:
  struct Move {
    const std::byte* from;
    std::byte* to;
    std::size_t bytes;
  };
  std::vector<Move> moves_;
  std::uint64_t poison_ = 0;
  Gate former_;
};

}  // namespace altorch
