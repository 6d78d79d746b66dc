// SPDX-License-Identifier: BSD-3-Clause
// The local steps of altorch.ops.all_reduce_quantized (docs/quantized.md). The quantized values are
// a byte tensor on the device of the values. It has a row for each chunk: a QuantizedHeader, then
// packs (reduction/quantized.h). On a GPU all steps run in the order of the current stream. Thread
// rules: any thread. Throw Error(kInvalidArgument) for other types, and Error(kUnsupported) for
// other devices.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace altorch::backend {

// `tensor`: contiguous float16, bfloat16 or float32. Its elements are cut into `number` chunks of
// equal size; the last chunks may be partly or completely empty. `mean`: stored in the header.
at::Tensor quantize(const at::Tensor& tensor, std::int64_t number, bool float8, bool mean);

// result[i] = (the sum of value i of all chunks) * factor. `result`: contiguous, with as many
// elements as a chunk, or as the tensor if that became one chunk. If headers differ it throws
// Error(kMismatch) for CPU tensors, and stores NaN for CUDA tensors.
void sum_quantized(const at::Tensor& chunks, const at::Tensor& result, double factor, bool float8);

// Writes the values of all chunks, in order, to `result`: of the type and size of the tensor.
void dequantize(const at::Tensor& chunks, const at::Tensor& result, bool float8);

}  // namespace altorch::backend
