// SPDX-License-Identifier: BSD-3-Clause
// A call on another rank's window as that rank is told of it: in a message, or in memory that both
// share.
//
// Fixed sizes, no pointers; all ranks of a job run one build. The receiving rank has not written
// the request, so it calls fits() before it does anything.
#pragma once

#include <cstddef>
#include <cstdint>

#include "transports/window.h"

namespace altorch {

struct WindowRequest {
  std::uint8_t access = 0, dtype = 0, op = 0, slot = 0;  // slot + 1
  std::uint32_t unused = 0;
  std::uint64_t offset = 0, row_bytes = 0, rows = 0, stride = 0;  // bytes
  std::int64_t operand = 0, expected = 0;

  static WindowRequest of(const WindowCall& call);
  // Whether it is a call on memory of so many bytes, and lies within.
  bool fits(std::size_t bytes) const;
  // The call of a request that fits. It has neither peer nor buffers.
  WindowCall call() const;
};

}  // namespace altorch
