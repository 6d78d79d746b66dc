// SPDX-License-Identifier: BSD-3-Clause
#include "reduction/quantized.h"

#include <algorithm>
#include <cstring>
#include <string>

#include "base/error.h"
#include "reduction/default_floats.h"
#include "reduction/kernel_table.h"
#include "reduction/reduce.h"

namespace altorch {
namespace {

using reduction::kQuantizedBlock;

// Stays in the L1 cache.
constexpr std::size_t kAtOnce = 8 * kQuantizedBlock;

void check_quantizable(DType dtype) {
  if (is_half(dtype) || dtype == DType::kFloat32) return;
  throw Error(ErrorKind::kInvalidArgument,
              std::string("values in 8 bits are for float16, bfloat16 and float32, not ") + name_of(dtype) +
                  "; convert the tensor");
}

}  // namespace

void quantize(DType dtype, bool float8, const void* values, std::size_t count, void* chunk,
              std::size_t size) {
  check_quantizable(dtype);
  const auto kernel = reduction::kernel_table().quantize[float8 ? 1 : 0];
  auto* const codes = static_cast<std::uint8_t*>(chunk);
  auto* const scales = reinterpret_cast<float*>(codes + size);
  const auto* const from = static_cast<const std::byte*>(values);
  const reduction::DefaultFloats floats;
  alignas(64) float wide[kAtOnce];
  for (std::size_t begin = 0; begin < count; begin += kAtOnce) {
    const std::size_t length = std::min(kAtOnce, count - begin);
    if (is_half(dtype)) {
      widen(dtype, from + begin * size_of(dtype), wide, length);
    } else {
      std::memcpy(wide, from + begin * sizeof(float), length * sizeof(float));
    }
    kernel(wide, length, codes + begin, scales + begin / kQuantizedBlock);
  }
  const std::size_t blocks = (count + kQuantizedBlock - 1) / kQuantizedBlock;
  std::memset(codes + count, 0, size - count);
  std::memset(scales + blocks, 0, (size / kQuantizedBlock - blocks) * sizeof(float));
}

void sum_quantized(DType dtype, bool float8, std::span<const void* const> chunks, std::size_t size,
                   float factor, void* out, std::size_t count) {
  check_quantizable(dtype);
  const auto kernel = reduction::kernel_table().add_quantized[float8 ? 1 : 0];
  auto* const to = static_cast<std::byte*>(out);
  const reduction::DefaultFloats floats;
  alignas(64) float sums[kAtOnce];
  for (std::size_t begin = 0; begin < count; begin += kAtOnce) {
    const std::size_t length = std::min(kAtOnce, count - begin);
    std::fill_n(sums, length, 0.0f);
    for (const void* chunk : chunks) {
      const auto* const codes = static_cast<const std::uint8_t*>(chunk);
      const auto* const scales = reinterpret_cast<const float*>(codes + size);
      kernel(codes + begin, scales + begin / kQuantizedBlock, sums, length);
    }
    if (factor != 1.0f) {
      for (std::size_t i = 0; i < length; ++i) sums[i] *= factor;
    }
    if (is_half(dtype)) {
      narrow(dtype, sums, to + begin * size_of(dtype), length);
    } else {
      std::memcpy(to + begin * sizeof(float), sums, length * sizeof(float));
    }
  }
}

}  // namespace altorch
