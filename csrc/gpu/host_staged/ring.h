// SPDX-License-Identifier: BSD-3-Clause
// A ring of a few slots of pinned memory, which are used in turn. Flags say whether the GPU or the
// host has a slot. A message of any length takes no more pinned memory than this.
//
// The flags of one use of a slot: filled (raised by the GPU, for the host) -> carried (by the host,
// for the GPU) -> free (by the host or the GPU, whichever touches the slot last). A use without one
// of these stages leaves that flag as it is.
#pragma once

#include <vector>

#include "device/device.h"

namespace altorch {

// One use of a slot.
struct Slot {
  std::byte* data = nullptr;
  Flag* filled = nullptr;
  Flag* carried = nullptr;
  Flag* free = nullptr;
  std::uint32_t round = 0;  // what this use raises the flags to
  Gate former() const { return {free, round - 1}; }
};

// Thread rules: one thread at a time; flags as in base/flag.h.
class Ring {
 public:
  // `memory`: bytes() of pinned memory, zero at first.
  Ring(PinnedMemory memory, std::size_t slot_bytes, std::size_t slots)
      : slot_bytes_(slot_bytes), memory_(std::move(memory)), rounds_(slots, 0) {}
  static std::size_t bytes(std::size_t slot_bytes, std::size_t slots) {
    return slots * (sizeof(Flags) + slot_bytes);
  }

  std::size_t slots() const { return rounds_.size(); }
  // What keeps the memory alive.
  const PinnedMemory& memory() const { return memory_; }
  // The next slot in turn. Its former user may not be done yet: former() says when.
  Slot take();

 private:
  struct Flags {  // at the beginning of the memory, one per slot
    Flag filled, carried, free;
  };
  const std::size_t slot_bytes_;
  const PinnedMemory memory_;
  std::vector<std::uint32_t> rounds_;
  std::size_t next_ = 0;
};

}  // namespace altorch
