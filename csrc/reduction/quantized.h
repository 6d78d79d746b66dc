// SPDX-License-Identifier: BSD-3-Clause
// Values in 8 bits on host memory: altorch.ops.all_reduce_quantized (docs/quantized.md).
//
// Values are cut into units of kQuantizedUnit, a matrix of kQuantizedRows rows of kQuantizedPacks
// pairs. A column of pairs becomes a pack of 16 bytes: a code of 8 bits for each value, row after
// row, and the scale of all 14, a bfloat16. So a warp of a GPU loads whole rows, and each of its
// lanes packs its own column. Codes are float8_e4m3fn (`float8`) or int8.
//
//            pack 0    pack 1   ...   pack 59
//   row 0    0  1      2  3           118 119
//   ...
//   row 6  720 721   722 723          838 839
//
// Thread rules: pure functions, any thread. Throw Error(kInvalidArgument) for a type that is not
// float16, bfloat16 or float32.
#pragma once

#include <cstddef>
#include <span>

#include "base/dtype.h"
#include "reduction/kernel_table.h"

namespace altorch {

// The values of a unit, and the bytes of its packs.
inline constexpr std::size_t kQuantizedUnit = reduction::kQuantizedUnit;
inline constexpr std::size_t kQuantizedUnitBytes = 16 * reduction::kQuantizedPacks;

// `packs`: `units` units, aligned to 2 bytes, of which `count` values fill the first; the others
// are zeros.
void quantize(DType dtype, bool float8, const void* values, std::size_t count, void* packs,
              std::size_t units);

// out[i] = (the sum of value i of all `parts`) * factor, for i < count: added in float32 from the
// first part to the last, rounded once.
void sum_quantized(DType dtype, bool float8, std::span<const void* const> parts, float factor, void* out,
                   std::size_t count);

}  // namespace altorch
