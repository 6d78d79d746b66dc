// SPDX-License-Identifier: BSD-3-Clause
// Values in 8 bits on host memory: altorch.ops.all_reduce_quantized (docs/quantized.md).
//
// A chunk of `size` elements, a multiple of kQuantizedBlock (kernel_table.h), takes size * 33 / 32
// bytes: `size` codes, then a float32 scale for every kQuantizedBlock of them. Codes are
// float8_e4m3fn (`float8`) or int8. Thread rules: pure functions, any thread.
// Throw Error(kInvalidArgument) for a type that is not float16, bfloat16 or float32.
#pragma once

#include <cstddef>
#include <span>

#include "base/dtype.h"

namespace altorch {

// `count` <= size; the rest of the chunk becomes zeros.
void quantize(DType dtype, bool float8, const void* values, std::size_t count, void* chunk, std::size_t size);

// out[i] = (the sum over the chunks of value i) * factor, for i < count <= size: added in float32
// from the first chunk to the last, rounded once.
void sum_quantized(DType dtype, bool float8, std::span<const void* const> chunks, std::size_t size,
                   float factor, void* out, std::size_t count);

}  // namespace altorch
