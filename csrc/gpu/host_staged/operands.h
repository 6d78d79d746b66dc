// SPDX-License-Identifier: BSD-3-Clause
// Places in the buffers of an operation, counted in elements.
#pragma once

#include <cstddef>

#include "base/operation.h"

namespace altorch {

inline std::int64_t bytes_of(const Operation& operation, std::int64_t elements) {
  return elements * static_cast<std::int64_t>(size_of(operation.dtype));
}
inline const std::byte* input_at(const Operation& operation, std::int64_t element) {
  const void* base = operation.kind == OpKind::kBroadcast ? operation.output : operation.input;
  return static_cast<const std::byte*>(base) + bytes_of(operation, element);
}
inline std::byte* output_at(const Operation& operation, std::int64_t element) {
  return static_cast<std::byte*>(operation.output) + bytes_of(operation, element);
}

}  // namespace altorch
