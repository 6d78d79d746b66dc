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

// Stays in the L1 cache.
constexpr std::size_t kUnitsAtOnce = 2, kAtOnce = kUnitsAtOnce * kQuantizedUnit;

void check_quantizable(DType dtype) {
  if (is_half(dtype) || dtype == DType::kFloat32) return;
  throw Error(ErrorKind::kInvalidArgument,
              std::string("values in 8 bits are for float16, bfloat16 and float32, not ") + name_of(dtype) +
                  "; convert the tensor");
}

std::size_t units_for(std::size_t count) { return (count + kQuantizedUnit - 1) / kQuantizedUnit; }

}  // namespace

void quantize(DType dtype, bool float8, const void* values, std::size_t count, void* packs,
              std::size_t units) {
  check_quantizable(dtype);
  const auto kernel = reduction::kernel_table().quantize[float8 ? 1 : 0];
  auto* const to = static_cast<std::byte*>(packs);
  const auto* const from = static_cast<const std::byte*>(values);
  const reduction::DefaultFloats floats;
  alignas(64) float wide[kAtOnce];
  for (std::size_t begin = 0; begin < count; begin += kAtOnce) {
    const std::size_t length = std::min(kAtOnce, count - begin), filled = units_for(length);
    if (is_half(dtype)) {
      widen(dtype, from + begin * size_of(dtype), wide, length);
    } else {
      std::memcpy(wide, from + begin * sizeof(float), length * sizeof(float));
    }
    std::fill(wide + length, wide + filled * kQuantizedUnit, 0.0f);
    kernel(wide, filled, reinterpret_cast<std::uint16_t*>(to + begin / kQuantizedUnit * kQuantizedUnitBytes));
  }
  const std::size_t filled = units_for(count);
  std::memset(to + filled * kQuantizedUnitBytes, 0, (units - filled) * kQuantizedUnitBytes);
}

void sum_quantized(DType dtype, bool float8, std::span<const void* const> parts, float factor, void* out,
                   std::size_t count) {
  check_quantizable(dtype);
  const auto kernel = reduction::kernel_table().add_quantized[float8 ? 1 : 0];
  auto* const to = static_cast<std::byte*>(out);
  const reduction::DefaultFloats floats;
  alignas(64) float sums[kAtOnce];
  for (std::size_t begin = 0; begin < count; begin += kAtOnce) {
    const std::size_t length = std::min(kAtOnce, count - begin), units = units_for(length);
    std::fill_n(sums, units * kQuantizedUnit, -0.0f);  // which changes no number
    for (const void* part : parts) {
      const auto* const packs = static_cast<const std::byte*>(part);
      kernel(reinterpret_cast<const std::uint16_t*>(packs + begin / kQuantizedUnit * kQuantizedUnitBytes),
             units, sums);
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
