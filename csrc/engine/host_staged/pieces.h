// A collective on device memory, cut into pieces that fit into pinned memory: which part of which block goes
// where, and the operation on host memory that carries the piece. Pure functions of what all ranks know
// alike, so all ranks cut alike.
#pragma once

#include <vector>

#include "device/device.h"
#include "engine/operation.h"

namespace altorch {

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
};

// For all_reduce, reduce, broadcast, all_gather and reduce_scatter. The others are messages: of their blocks
// only the two ends know the size.
class PieceCutter {
 public:
  // The operation must outlive the cutter.
  PieceCutter(const Operation& operation, int rank, int size, std::size_t slot_bytes);

  std::int64_t pieces() const { return pieces_; }
  // Reuses what `piece` has allocated.
  void cut(std::int64_t index, std::byte* slot, Piece& piece) const;

 private:
  std::int64_t total(int block) const;  // elements of a block
  std::int64_t begin(int block) const;  // where it starts in the vector of all blocks, in elements
  void copies(std::int64_t index, const void* device, std::byte* host, bool all_blocks,
              std::vector<PieceCopy>& copies) const;

  const Operation& operation_;
  const int rank_, size_;
  const std::span<const std::int64_t> counts_;  // of the blocks; empty where they are alike
  const bool has_blocks_, gathers_;
  std::int64_t step_ = 1;  // elements of each block in one piece
  std::int64_t pieces_ = 0;
};

}  // namespace altorch
