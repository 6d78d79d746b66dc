// SPDX-License-Identifier: BSD-3-Clause
// A collective on device memory, cut into pieces that fit into pinned memory: which part of which
// block goes where, and the operation on host memory that carries the piece. Pure functions of what
// all ranks know alike, so all ranks cut alike.
#pragma once

#include <vector>

#include "base/operation.h"
#include "base/shape.h"
#include "device/device.h"

namespace altorch {

// Elements: blocks and shares begin at multiples, for vector instructions.
inline constexpr std::int64_t kAligned = 64;

// Bytes from one place in the caller's buffer to one in the slot, or back.
struct PieceCopy {
  std::byte* device = nullptr;
  std::byte* host = nullptr;
  std::size_t bytes = 0;
};

struct Piece {
  Operation operation;  // on the slot; its spans point to `counts`
  std::vector<std::int64_t> counts;
  std::vector<PieceCopy> inputs, outputs;

  // Bytes of the slot that the operation reads or writes, from its beginning on.
  std::size_t used(const std::byte* slot) const;
  std::size_t result_bytes() const;  // all outputs
};

// For vector collectives (base/shape.h). The others are messages: of their blocks only the two ends
// know the size.
class PieceCutter {
 public:
  // `step`: elements of the vector, or of each block, in one piece. The operation must outlive the
  // cutter.
  PieceCutter(const Operation& operation, int rank, int size, std::int64_t step);
  // The largest step with which `vectors` vectors, or blocks, fit into a piece. Throws
  // Error(kUnsupported).
  static std::int64_t step_for(std::size_t piece_bytes, DType dtype, std::int64_t vectors);

  std::int64_t pieces() const { return pieces_; }
  std::int64_t step() const { return step_; }
  // Of the vector's piece, or of a block's in the vector of all blocks.
  Range vector(std::int64_t index) const;
  Range block(std::int64_t index, int block) const;

  // For the host to carry: the whole piece in one slot. Reuses what `piece` has allocated.
  void cut(std::int64_t index, std::byte* slot, Piece& piece) const;

 private:
  void copies(std::int64_t index, const void* device, std::byte* host, bool all_blocks,
              std::vector<PieceCopy>& copies) const;

  const Operation& operation_;
  const int rank_, size_;
  const std::span<const std::int64_t> counts_;  // of the blocks; empty where they are alike
  const bool has_blocks_, gathers_;
  const std::int64_t step_;
  std::int64_t pieces_ = 0;
};

}  // namespace altorch
