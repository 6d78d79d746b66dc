// SPDX-License-Identifier: BSD-3-Clause
// Exact sums of tensors that one rank has, without a group: altorch.ops.exact_sum.
#pragma once

#include <ATen/core/Tensor.h>

namespace altorch::backend {

// The exact sum, or mean, of stacked[0], stacked[1], ..., rounded once: a new tensor on the same
// device, on a GPU in the order of the current stream. Throws Error(kInvalidArgument) for another
// type or shape, and Error(kUnsupported) if the tensor requires a gradient, if there are more than
// 64 summands on a GPU, and for other devices. Thread rules: any thread.
at::Tensor exact_sum(const at::Tensor& stacked, bool mean);

}  // namespace altorch::backend
