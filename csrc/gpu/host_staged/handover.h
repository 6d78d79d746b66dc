// SPDX-License-Identifier: BSD-3-Clause
// Hands results over within one slot: from the place where a carrier leaves them to a second place,
// from which the GPU takes them. The host copies the results, or writes the mark of an aborted call
// (poison_of()) to the second place. No transport writes to the second place, not even one that
// could not cancel what it had begun.
//
// Results that are too large for this are marked by a kernel (poison_guard.h). Small ones avoid it,
// because processes that share a GPU take turns on it for a kernel: an all_reduce of 1 KiB took 277
// us instead of 35 (H200).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "gpu/host_staged/pieces.h"

namespace altorch {

class Handover {
 public:
  // Larger results are not worth the copy.
  static constexpr std::size_t kMost = 512 << 10;

  // Hands over nothing.
  Handover() = default;
  // Whether a slot whose first `used` bytes are taken has room for `results` bytes, and these are
  // worth the copy.
  static bool fits(std::size_t used, std::size_t results, std::size_t slot_bytes);
  // Hands over `outputs`, and moves their host side to the second place, from `place` on. `poison`:
  // poison_of() their type. `former`: opens when the GPU has taken all that an earlier use of the
  // slot has left there.
  Handover(std::span<PieceCopy> outputs, std::byte* place, std::uint64_t poison, Gate former = {});

  // The host calls this, or abort(), before it tells the GPU to take the results. Copies them to
  // the second place.
  void succeed() const;
  // Writes the mark, unless the GPU has yet to take an earlier call's result from there, which may
  // be valid.
  void abort() const;

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
