// SPDX-License-Identifier: BSD-3-Clause
// What kernels must compute, by the engine's own reductions on the host.
#pragma once

#include <span>

#include "device/image.h"
#include "reduction/reduce.h"

namespace altorch {

// Random elements, the same for the same seed.
inline Bytes elements_of(DType dtype, std::size_t count, unsigned seed) {
  std::mt19937_64 random(seed);
  return reference::random_elements(dtype, count, random);
}

// combine(), of a single part as well.
inline Bytes combined(DType dtype, ReduceOp op, std::span<const Bytes> parts) {
  Bytes result = parts.front();
  if (parts.size() == 1) {
    if (dtype == DType::kBool) {
      for (auto& byte : result) byte = byte != 0;
    }
    return result;
  }
  std::vector<const void*> pointers;
  for (const Bytes& part : parts) pointers.push_back(part.data());
  combine(dtype, op, pointers, result.data(), result.size() / size_of(dtype));
  return result;
}

}  // namespace altorch
