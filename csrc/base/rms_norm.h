// SPDX-License-Identifier: BSD-3-Clause
// What comes behind an all_reduce in a layer of a transformer, in one call with it.
#pragma once

#include <cstdint>

namespace altorch {

// The sum is added to a residual, and the rows of that are divided by their root mean square, which
// is the call's output. Buffers of as many elements as the call's, but for the weight, and of its
// type.
struct RmsNorm {
  const void* residual = nullptr;
  const void* weight = nullptr;  // of a row; null: none
  void* summed = nullptr;        // sum and residual; may be the residual
  double epsilon = 0;            // added to the mean square
};

}  // namespace altorch
