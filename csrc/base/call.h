// SPDX-License-Identifier: BSD-3-Clause
// One call on a group, the same for everything that handles it: a route, a library's native
// collective, a comparison of calls.
#pragma once

#include <cstdint>
#include <span>

#include "base/dtype.h"
#include "base/op_kind.h"
#include "base/reduce_op.h"
#include "base/rms_norm.h"

namespace altorch {

// Buffers follow the conventions of collectives/schedule.h (Problem); counts are in elements. A
// call does not own what it points to: the caller keeps buffers and count arrays alive until the
// call is done.
struct Call {
  OpKind kind = OpKind::kBarrier;
  DType dtype = DType::kUInt8;
  ReduceOp op = ReduceOp::kSum;
  int root = 0;  // or the peer of a message (kAnySource for any)
  const void* input = nullptr;
  void* output = nullptr;
  std::int64_t count = 0;  // elements of the vector, or of one block
  std::span<const std::int64_t> input_counts = {};
  std::span<const std::int64_t> output_counts = {};
  double factor = 1.0;            // PREMUL_SUM only
  const RmsNorm* norm = nullptr;  // all_reduce only: the RMS norm after it; null: none
  std::int64_t norm_row = 0;      // elements of a row of the norm; count is a multiple of it; 0: no norm
  // all_to_all: two ranks exchange their blocks in another way if neither block is larger than
  // this.
  std::int64_t paired_bytes = 0;

  bool reduces() const { return altorch::reduces(kind); }
  bool is_message() const { return altorch::is_message(kind); }
  bool is_collective() const { return altorch::is_collective(kind); }
  bool uneven() const { return !input_counts.empty() || !output_counts.empty(); }
};

}  // namespace altorch
