// SPDX-License-Identifier: BSD-3-Clause
// The steps of altorch.ops.all_reduce_quantized that a rank takes alone (docs/quantized.md). Values
// in 8 bits are a byte tensor with a row for each chunk, a header and then packs
// (reduction/quantized.h), on the device of the values. On a GPU all run in the order of the
// current stream. Thread rules: any thread. Throw Error(kInvalidArgument) for other types, and
// Error(kUnsupported) for other devices.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace altorch::backend {

// `tensor`: contiguous float16, bfloat16 or float32. Its elements are cut into `number` chunks of
// one size, of which the last may have less, or nothing. `mean`: for the header.
at::Tensor quantize(const at::Tensor& tensor, std::int64_t number, bool float8, bool mean);

// result[i] = (the sum of value i of all chunks) * factor. `result`: contiguous, with the elements
// of a whole chunk, or of the tensor that became a single one. Where chunks are not of the same
// call it throws Error(kMismatch) on the host, and gives NaN on a GPU.
void sum_quantized(const at::Tensor& chunks, const at::Tensor& result, double factor, bool float8);

// The values of all chunks, one chunk behind the other. `result`: as the tensor was.
void dequantize(const at::Tensor& chunks, const at::Tensor& result, bool float8);

}  // namespace altorch::backend
