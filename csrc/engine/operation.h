// What the caller asked for, as a plain struct.
#pragma once

#include <chrono>
#include <cstdint>
#include <span>

#include "common/dtype.h"
#include "common/op_kind.h"
#include "common/reduce_op.h"

namespace altorch {

// Host memory; other values are CUDA device indices.
inline constexpr int kHostDevice = -1;

// Buffers follow the conventions of collectives/schedule.h (Problem); counts are in elements. The operation
// does not own what it points to: whoever submits keeps buffers and count arrays alive until it is done.
struct Operation {
  OpKind kind = OpKind::kBarrier;
  DType dtype = DType::kUInt8;
  ReduceOp op = ReduceOp::kSum;
  double factor = 1.0;   // PREMUL_SUM only
  int root = 0;          // or the peer of a message (kAnySource for any)
  std::int64_t tag = 0;  // messages only
  const void* input = nullptr;
  void* output = nullptr;
  std::int64_t count = 0;  // elements of the vector, or of one block
  std::span<const std::int64_t> input_counts = {};
  std::span<const std::int64_t> output_counts = {};
  // all_to_all: two ranks of whom neither has more bytes than this for the other exchange them in another
  // way.
  std::int64_t apart = 0;
  int device = kHostDevice;  // where the buffers live
  void* stream = nullptr;    // the caller's current stream on that device
  std::chrono::milliseconds timeout{0};
  std::uint64_t sequence = 0;
  // Of the group's collectives before this one (append_call): ranks whose earlier calls differ never meet.
  std::uint64_t history = 0;

  bool reduces() const {
    return kind == OpKind::kAllReduce || kind == OpKind::kReduce || kind == OpKind::kReduceScatter;
  }
  bool is_message() const { return kind == OpKind::kSend || kind == OpKind::kReceive; }
  bool uneven() const { return !input_counts.empty() || !output_counts.empty(); }
};

// Bytes that `altorch` counts for an operation in statistics and thresholds: of the vector, or of all blocks.
std::int64_t payload_bytes(const Operation& operation, int size);

}  // namespace altorch
