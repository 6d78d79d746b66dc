// SPDX-License-Identifier: BSD-3-Clause
#include "runtime/staging.h"

#include <algorithm>
#include <cstring>

#include "base/shape.h"
#include "collectives/schedule.h"
#include "reduction/reduce.h"

namespace altorch {
void Staging::begin(const Operation& operation, int rank, int size) {
  operation_ = &operation;
  rank_ = rank;
  size_ = size;
  staged_dtype_ = is_half(operation.dtype) ? DType::kFloat32 : operation.dtype;
  blocks_ = scatters(operation.kind) ? size : 1;
  longest_ = 0;
  for (int block = 0; block < blocks_; ++block) longest_ = std::max(longest_, block_count(block));
  offset_ = 0;
  length_ =
      std::max<std::int64_t>(1, kPieceBytes / static_cast<std::int64_t>(size_of(staged_dtype_)) / blocks_);
  length_ = std::min(length_, std::max<std::int64_t>(longest_, 1));
  started_ = false;
  const std::size_t block_bytes = static_cast<std::size_t>(length_) * size_of(staged_dtype_);
  input_ = static_cast<char*>(memory_.reserve(block_bytes * static_cast<std::size_t>(blocks_ + 1)));
  output_ = input_ + block_bytes * static_cast<std::size_t>(blocks_);
}

std::int64_t Staging::block_count(int block) const {
  return altorch::block_count(operation_->input_counts, operation_->count, block);
}

std::int64_t Staging::piece_of(int block) const {
  return std::clamp<std::int64_t>(block_count(block) - offset_, 0, length_);
}

bool Staging::next(Operation& piece) {
  if (started_) offset_ += length_;
  if (started_ && offset_ >= longest_) {
    memory_.trim();
    return false;
  }
  started_ = true;
  const Operation& whole = *operation_;
  const std::size_t element = size_of(whole.dtype), staged = size_of(staged_dtype_);
  // all_reduce and scans work in place on their output; the others read their input.
  const bool in_place = whole.kind == OpKind::kAllReduce || is_scan(whole.kind);
  const auto* source = static_cast<const char*>(in_place ? whole.output : whole.input);
  counts_.clear();
  char* target = input_;
  for (int block = 0; block < blocks_; ++block) {
    const std::int64_t count = piece_of(block);
    const std::int64_t at = altorch::block_offset(whole.input_counts, whole.count, block) + offset_;
    if (count > 0) load(source + static_cast<std::size_t>(at) * element, target, count);
    target += static_cast<std::size_t>(count) * staged;
    counts_.push_back(count);
  }
  piece = whole;
  piece.dtype = staged_dtype_;
  piece.op = whole.op == ReduceOp::kPremulSum || whole.op == ReduceOp::kAvg ? ReduceOp::kSum : whole.op;
  piece.input = input_;
  piece.count = counts_[0];
  piece.input_counts = {};
  piece.output_counts = {};
  piece.output = scatters(whole.kind) ? output_ : input_;
  if (scatters(whole.kind)) {
    piece.count = counts_[static_cast<std::size_t>(rank_)];
    if (!whole.input_counts.empty()) piece.input_counts = counts_;
  }
  return true;
}

void Staging::finish_piece() {
  const Operation& whole = *operation_;
  if (!has_output(whole, rank_)) return;
  const std::int64_t count = scatters(whole.kind) ? piece_of(rank_) : piece_of(0);
  if (count == 0) return;
  char* result = scatters(whole.kind) ? output_ : input_;
  if (whole.op == ReduceOp::kAvg) average(staged_dtype_, result, size_, static_cast<std::size_t>(count));
  const std::size_t at = static_cast<std::size_t>(offset_) * size_of(whole.dtype);
  store(result, static_cast<char*>(whole.output) + at, count);
}

void Staging::load(const char* from, char* to, std::int64_t count) const {
  const auto n = static_cast<std::size_t>(count);
  if (is_half(operation_->dtype)) {
    widen(operation_->dtype, from, reinterpret_cast<float*>(to), n);
  } else {
    std::memcpy(to, from, n * size_of(staged_dtype_));
  }
  if (operation_->op == ReduceOp::kPremulSum) scale(staged_dtype_, to, operation_->factor, n);
}

void Staging::store(const char* from, char* to, std::int64_t count) const {
  const auto n = static_cast<std::size_t>(count);
  if (is_half(operation_->dtype)) {
    narrow(operation_->dtype, reinterpret_cast<const float*>(from), to, n);
  } else {
    std::memcpy(to, from, n * size_of(staged_dtype_));
  }
}

}  // namespace altorch
