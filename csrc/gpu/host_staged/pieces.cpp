// SPDX-License-Identifier: BSD-3-Clause
#include "gpu/host_staged/pieces.h"

#include <algorithm>

#include "base/block_counts.h"
#include "base/error.h"
#include "gpu/host_staged/operands.h"

namespace altorch {

std::size_t Piece::used(const std::byte* slot) const {
  const std::byte* end = slot;
  for (const auto* copies : {&inputs, &outputs})
    for (const PieceCopy& copy : *copies) end = std::max<const std::byte*>(end, copy.host + copy.bytes);
  return static_cast<std::size_t>(end - slot);
}

std::size_t Piece::result_bytes() const {
  std::size_t bytes = 0;
  for (const PieceCopy& copy : outputs) bytes += copy.bytes;
  return bytes;
}

PieceCutter::PieceCutter(const Operation& operation, int rank, int size, std::int64_t step)
    : operation_(operation),
      rank_(rank),
      size_(size),
      counts_(block_counts(operation)),
      has_blocks_(has_blocks(operation.kind)),
      gathers_(kOpKinds[operation.kind].output == Holds::kAllBlocks),
      step_(step) {
  pieces_ = (longest_block(operation) + step_ - 1) / step_;
}

std::int64_t PieceCutter::step_for(std::size_t piece_bytes, DType dtype, std::int64_t vectors) {
  const std::int64_t step = static_cast<std::int64_t>(piece_bytes / size_of(dtype)) / vectors;
  if (step > 0) return step > kAligned ? step - step % kAligned : step;
  throw Error(ErrorKind::kUnsupported, "a piece of pinned memory (" + std::to_string(piece_bytes) +
                                           " bytes) cannot hold one element of each rank; raise "
                                           "ALTORCH_PINNED_BYTES");
}

Range PieceCutter::vector(std::int64_t index) const {
  return {index * step_, std::clamp<std::int64_t>(operation_.count - index * step_, 0, step_)};
}

Range PieceCutter::block(std::int64_t index, int block) const {
  const std::int64_t total = block_count(counts_, operation_.count, block);
  return {block_offset(counts_, operation_.count, block) + index * step_,
          std::clamp<std::int64_t>(total - index * step_, 0, step_)};
}

void PieceCutter::copies(std::int64_t index, const void* device, std::byte* host, bool all_blocks,
                         std::vector<PieceCopy>& copies) const {
  const auto element = static_cast<std::int64_t>(size_of(operation_.dtype));
  auto* base = static_cast<std::byte*>(const_cast<void*>(device));
  for (int number = all_blocks ? 0 : rank_; number < (all_blocks ? size_ : rank_ + 1); ++number) {
    const Range range = block(index, number);
    const std::int64_t begin = all_blocks ? range.begin : index * step_;
    if (range.count > 0)
      copies.push_back({base + begin * element, host, static_cast<std::size_t>(range.count * element)});
    host += range.count * element;
  }
}

void PieceCutter::cut(std::int64_t index, std::byte* slot, Piece& piece) const {
  piece.operation = operation_;
  piece.operation.device = kHostDevice;
  piece.operation.input_counts = piece.operation.output_counts = {};
  piece.counts.clear();
  piece.inputs.clear();
  piece.outputs.clear();
  const auto element = static_cast<std::int64_t>(size_of(operation_.dtype));
  piece.operation.input = piece.operation.output = slot;

  if (!has_blocks_) {
    const Range range = vector(index);
    const auto bytes = static_cast<std::size_t>(range.count * element);
    piece.operation.count = range.count;
    if (has_input(operation_, rank_))
      piece.inputs.push_back({const_cast<std::byte*>(input_at(operation_, range.begin)), slot, bytes});
    if (result_count(operation_, rank_, size_) > 0)
      piece.outputs.push_back({output_at(operation_, range.begin), slot, bytes});
    return;
  }
  piece.operation.count = block(index, rank_).count;
  if (!counts_.empty()) {
    for (int number = 0; number < size_; ++number) piece.counts.push_back(block(index, number).count);
    (gathers_ ? piece.operation.output_counts : piece.operation.input_counts) = piece.counts;
  }
  // The side with all blocks comes second, so that the other one keeps its alignment.
  std::byte* second = slot + step_ * element;
  copies(index, operation_.input, gathers_ ? slot : second, /*all_blocks=*/!gathers_, piece.inputs);
  copies(index, operation_.output, gathers_ ? second : slot, /*all_blocks=*/gathers_, piece.outputs);
  piece.operation.input = gathers_ ? slot : second;
  piece.operation.output = gathers_ ? second : slot;
}

}  // namespace altorch
