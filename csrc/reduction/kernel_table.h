// SPDX-License-Identifier: BSD-3-Clause
// The element-wise kernels of one instruction set, as tables of functions.
//
// The same source (kernels.inc) is compiled once per instruction set; the best set that this CPU
// has is chosen at run time, so that one build serves every machine. All sets give the same bits:
// no fused multiply-add, the same rounding, the same treatment of NaN.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "base/dtype.h"
#include "base/reduce_op.h"

namespace altorch::reduction {

using ReduceKernel = void (*)(const void* a, const void* b, void* out, std::size_t count);
// The exact sum of all parts, rounded once, or their mean.
using ExactKernel = void (*)(std::span<const void* const> parts, bool mean, void* out, std::size_t count);
using ScaleKernel = void (*)(void* data, double factor, std::size_t count);
using DivideKernel = void (*)(void* data, long long divisor, std::size_t count);
using WidenKernel = void (*)(const void* half, float* wide, std::size_t count);
// Of values in 8 bits (reduction/quantized.h): a unit has so many rows of so many pairs.
inline constexpr std::size_t kQuantizedRows = 7, kQuantizedPacks = 60;
inline constexpr std::size_t kQuantizedUnit = kQuantizedRows * 2 * kQuantizedPacks;
using QuantizeKernel = void (*)(const float* values, std::size_t units, std::uint16_t* packs);
using AddQuantizedKernel = void (*)(const std::uint16_t* packs, std::size_t units, float* sums);
using NarrowKernel = void (*)(const float* wide, void* half, std::size_t count);

// A null entry is a combination that torch does not define.
struct KernelTable {
  const char* name = "";
  std::array<std::array<ReduceKernel, kReduceOpCount>, kDTypeCount> reduce{};
  std::array<ExactKernel, kDTypeCount> exact{};
  std::array<ScaleKernel, kDTypeCount> scale{};
  std::array<DivideKernel, kDTypeCount> divide{};
  std::array<WidenKernel, kDTypeCount> widen{};
  std::array<NarrowKernel, kDTypeCount> narrow{};
  // Codes of int8, and of float8_e4m3fn.
  std::array<QuantizeKernel, 2> quantize{};
  std::array<AddQuantizedKernel, 2> add_quantized{};
};

// What this CPU can run, the best last. Never empty.
std::span<const KernelTable* const> usable_kernel_tables();
// The best of them.
const KernelTable& kernel_table();

}  // namespace altorch::reduction
