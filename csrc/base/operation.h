// SPDX-License-Identifier: BSD-3-Clause
// What the caller asked for, as a plain struct.
#pragma once

#include <chrono>
#include <cstdint>

#include "base/call.h"

namespace altorch {

// Host memory; other values are CUDA device indices.
inline constexpr int kHostDevice = -1;

// A call with its place in a group.
struct Operation : Call {
  std::int64_t tag = 0;     // messages only; one-sided: which window of the group
  const char* access = "";  // a literal; one-sided: "put to"; of a message: what it is of, if no user sent it
  int device = kHostDevice;  // where the buffers live
  void* stream = nullptr;    // the caller's current stream on that device
  std::chrono::milliseconds timeout{0};
  // Of a collective: its number among the group's collectives of its kind, CPU or CUDA.
  std::uint64_t sequence = 0;
  // Of all calls of this process, messages too: what observers know it by. 0: it has no place yet
  // (Group::append_to_history).
  std::uint64_t number = 0;
  // Of the group's collectives before this one in the same order (append_call): ranks whose earlier
  // calls differ never meet.
  std::uint64_t history = 0;

  bool on_gpu() const { return device != kHostDevice; }
};

// Bytes that `altorch` counts for an operation in statistics and thresholds: of the vector, or of
// all blocks.
std::int64_t payload_bytes(const Operation& operation, int size);

}  // namespace altorch
