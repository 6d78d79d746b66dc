#include "engine/host_staged/pieces.h"

#include <algorithm>

#include "common/block_counts.h"
#include "common/error.h"

namespace altorch {
namespace {

constexpr std::int64_t kAligned = 64;  // elements: blocks begin at multiples, for vector instructions

}  // namespace

PieceCutter::PieceCutter(const Operation& operation, int rank, int size, std::size_t slot_bytes)
    : operation_(operation),
      rank_(rank),
      size_(size),
      counts_(operation.kind == OpKind::kAllGather ? operation.output_counts : operation.input_counts),
      has_blocks_(operation.kind == OpKind::kAllGather || operation.kind == OpKind::kReduceScatter),
      gathers_(operation.kind == OpKind::kAllGather) {
  const auto elements = static_cast<std::int64_t>(slot_bytes / size_of(operation.dtype));
  // The slot holds what goes out and what comes in: for a vector that is one place.
  step_ = has_blocks_ ? elements / (size + 1) : elements;
  if (step_ == 0) {
    throw Error(ErrorKind::kUnsupported, "a piece of pinned memory (" + std::to_string(slot_bytes) +
                                             " bytes) cannot hold one element of each rank; raise "
                                             "ALTORCH_PINNED_BYTES");
  }
  if (step_ > kAligned) step_ -= step_ % kAligned;
  std::int64_t longest = operation.count;
  if (!counts_.empty()) longest = *std::max_element(counts_.begin(), counts_.end());
  pieces_ = (longest + step_ - 1) / step_;
}

std::int64_t PieceCutter::total(int block) const { return block_count(counts_, operation_.count, block); }
std::int64_t PieceCutter::begin(int block) const { return block_offset(counts_, operation_.count, block); }

void PieceCutter::copies(std::int64_t index, const void* device, std::byte* host, bool all_blocks,
                         std::vector<PieceCopy>& copies) const {
  const auto element = static_cast<std::int64_t>(size_of(operation_.dtype));
  auto* base = static_cast<std::byte*>(const_cast<void*>(device));
  for (int block = all_blocks ? 0 : rank_; block < (all_blocks ? size_ : rank_ + 1); ++block) {
    const std::int64_t count = std::clamp<std::int64_t>(total(block) - index * step_, 0, step_);
    const std::int64_t offset = (all_blocks ? begin(block) : 0) + index * step_;
    if (count > 0)
      copies.push_back({base + offset * element, host, static_cast<std::size_t>(count * element)});
    host += count * element;
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
  const std::int64_t own =
      std::clamp<std::int64_t>((has_blocks_ ? total(rank_) : operation_.count) - index * step_, 0, step_);
  piece.operation.count = own;
  piece.operation.input = piece.operation.output = slot;

  if (!has_blocks_) {
    const bool at_root = rank_ == operation_.root;
    const bool reads = operation_.kind != OpKind::kBroadcast || at_root;
    const bool writes =
        operation_.kind == OpKind::kAllReduce || (operation_.kind == OpKind::kReduce ? at_root : !at_root);
    const std::int64_t offset = index * step_ * element;
    const auto bytes = static_cast<std::size_t>(own * element);
    const void* input = operation_.kind == OpKind::kBroadcast ? operation_.output : operation_.input;
    auto* from = static_cast<std::byte*>(const_cast<void*>(input));
    if (reads) piece.inputs.push_back({from + offset, slot, bytes});
    if (writes) piece.outputs.push_back({static_cast<std::byte*>(operation_.output) + offset, slot, bytes});
    return;
  }
  if (!counts_.empty()) {
    for (int block = 0; block < size_; ++block)
      piece.counts.push_back(std::clamp<std::int64_t>(total(block) - index * step_, 0, step_));
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
