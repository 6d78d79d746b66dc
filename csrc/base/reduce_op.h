// SPDX-License-Identifier: BSD-3-Clause
// The reductions of torch.distributed: a row for each.
#pragma once

#include <cstdint>
#include <optional>

#include "base/dtype.h"
#include "base/enum_table.h"

namespace altorch {

// In torch's order (backend/c10d/backend_reduce.cpp counts on it), which is part of the wire
// fingerprint: append, never reorder.
enum class ReduceOp : std::uint8_t {
  kSum,
  kAvg,
  kProduct,
  kMin,
  kMax,
  kBand,
  kBor,
  kBxor,
  kPremulSum,
  // Only in altorch: SUM and AVG of a group whose sums are exact (docs/exact.md), and of float8.
  kExactSum,
  kExactAvg,
  // Only in altorch: sums of values that travel in 8 bits, of altorch.ops.all_reduce_quantized. The
  // LL128 kernels alone have them.
  kInt8Sum,
  kInt8Avg,
  kFloat8Sum,
  kFloat8Avg,
};
inline constexpr int kReduceOpCount = 15;
// Those that torch has.
inline constexpr int kTorchReduceOpCount = 9;
template <>
inline constexpr int kCountOf<ReduceOp> = kReduceOpCount;

// What a reduction makes of two values. Each is a function of reduction/operators.inc (for CPUs)
// and of device/kernels/numbers.cuh (for GPUs, under this name).
enum class BinaryOp : std::uint8_t { kSum, kProduct, kMin, kMax, kAnd, kOr, kXor, kExactSum };
inline constexpr int kBinaryOpCount = 8;
template <>
inline constexpr int kCountOf<BinaryOp> = kBinaryOpCount;

inline constexpr EnumTable<BinaryOp, const char*> kBinaryOpNames({
    {BinaryOp::kSum, "Sum"},
    {BinaryOp::kProduct, "Product"},
    {BinaryOp::kMin, "Min"},
    {BinaryOp::kMax, "Max"},
    {BinaryOp::kAnd, "And"},
    {BinaryOp::kOr, "Or"},
    {BinaryOp::kXor, "Xor"},
    {BinaryOp::kExactSum, "ExactSum"},
});
constexpr const char* name_of(BinaryOp op) { return kBinaryOpNames[op]; }

struct ReduceOpTraits {
  const char* name;  // torch's, for messages
  BinaryOp of_numbers;
  std::optional<BinaryOp> of_bools;  // none: not defined for them
  bool takes_integers = true, takes_complex = true, takes_float8 = false;
};

inline constexpr EnumTable<ReduceOp, ReduceOpTraits> kReduceOps({
    {ReduceOp::kSum, {"SUM", BinaryOp::kSum, BinaryOp::kOr}},
    {ReduceOp::kAvg, {"AVG", BinaryOp::kSum, std::nullopt}},
    {ReduceOp::kProduct, {"PRODUCT", BinaryOp::kProduct, BinaryOp::kAnd}},
    {ReduceOp::kMin, {"MIN", BinaryOp::kMin, BinaryOp::kAnd, true, true, true}},
    {ReduceOp::kMax, {"MAX", BinaryOp::kMax, BinaryOp::kOr, true, true, true}},
    {ReduceOp::kBand, {"BAND", BinaryOp::kAnd, BinaryOp::kAnd}},
    {ReduceOp::kBor, {"BOR", BinaryOp::kOr, BinaryOp::kOr}},
    {ReduceOp::kBxor, {"BXOR", BinaryOp::kXor, BinaryOp::kXor}},
    {ReduceOp::kPremulSum, {"PREMUL_SUM", BinaryOp::kSum, std::nullopt, false}},
    {ReduceOp::kExactSum, {"exact SUM", BinaryOp::kExactSum, std::nullopt, false, false, true}},
    {ReduceOp::kExactAvg, {"exact AVG", BinaryOp::kExactSum, std::nullopt, false, false, true}},
    {ReduceOp::kInt8Sum, {"SUM in int8", BinaryOp::kSum, std::nullopt, false, false}},
    {ReduceOp::kInt8Avg, {"AVG in int8", BinaryOp::kSum, std::nullopt, false, false}},
    {ReduceOp::kFloat8Sum, {"SUM in float8", BinaryOp::kSum, std::nullopt, false, false}},
    {ReduceOp::kFloat8Avg, {"AVG in float8", BinaryOp::kSum, std::nullopt, false, false}},
});
constexpr const char* name_of(ReduceOp op) { return kReduceOps[op].name; }
// More ranks are refused when a group is made: a sum of float16 in float64 would not be exact any
// more.
inline constexpr int kMostExactRanks = 8192;
// Whether `op` rounds once, so that one step must see all values.
constexpr bool is_exact(ReduceOp op) { return kReduceOps[op].of_numbers == BinaryOp::kExactSum; }

// Whether values travel in 8 bits.
constexpr bool is_quantized(ReduceOp op) { return op >= ReduceOp::kInt8Sum && op <= ReduceOp::kFloat8Avg; }
constexpr ReduceOp quantized_sum(bool float8, bool mean) {
  if (float8) return mean ? ReduceOp::kFloat8Avg : ReduceOp::kFloat8Sum;
  return mean ? ReduceOp::kInt8Avg : ReduceOp::kInt8Sum;
}
constexpr bool is_float8_sum(ReduceOp op) { return op == ReduceOp::kFloat8Sum || op == ReduceOp::kFloat8Avg; }
constexpr bool is_mean(ReduceOp op) {
  return op == ReduceOp::kAvg || op == ReduceOp::kExactAvg || op == ReduceOp::kInt8Avg ||
         op == ReduceOp::kFloat8Avg;
}

// SUM and AVG of float8 are always exact and rounded once: its 2 or 3 bits of mantissa are too few
// to round at each step.
constexpr ReduceOp rounded_once(ReduceOp op, DType dtype) {
  if (!is_float8(dtype)) return op;
  return op == ReduceOp::kSum ? ReduceOp::kExactSum : op == ReduceOp::kAvg ? ReduceOp::kExactAvg : op;
}

// How `op` combines two values of this type; none where torch does not define it for bools or
// integers, and where values travel in 8 bits: no kernel combines two values so.
constexpr std::optional<BinaryOp> binary_op_of(ReduceOp op, DType dtype) {
  const ReduceOpTraits& traits = kReduceOps[op];
  if (is_quantized(op)) return std::nullopt;
  if (dtype == DType::kBool) return traits.of_bools;
  if (is_integral(dtype) && !traits.takes_integers) return std::nullopt;
  if (is_complex(dtype) && !traits.takes_complex) return std::nullopt;
  if (is_float8(dtype) && !(is_reducible_float8(dtype) && traits.takes_float8)) return std::nullopt;
  return traits.of_numbers;
}

}  // namespace altorch
