// SPDX-License-Identifier: BSD-3-Clause
// Element-wise reductions on host memory.
//
// float16 and bfloat16 are computed in float32 and rounded once (to nearest even); integers wrap;
// bool follows torch: SUM and MAX and BOR are OR, PRODUCT and MIN and BAND are AND, BXOR is XOR.
// MIN and MAX of floating types propagate NaN. reduce() takes kAvg and kPremulSum as kSum: the
// scaling is average()'s and scale()'s. reduce() and combine() throw Error(kInvalidArgument),
// before they write, where can_reduce() is false. No alignment is needed. Thread rules: pure
// functions. Source of the semantics: torch/csrc/distributed/c10d and ATen.
#pragma once

#include <cstddef>
#include <span>

#include "base/dtype.h"
#include "base/reduce_op.h"

namespace altorch {

// Whether one step of this reduction is defined for this type: float8_e4m3fn and float8_e5m2 take
// MIN, MAX, kExactSum and kExactAvg (rounded_once()), other float8 nothing; bit operators take
// integers and bool, MIN, MAX take no complex, AVG takes no bool, PREMUL_SUM takes floating types
// (and complex).
bool can_reduce(DType dtype, ReduceOp op);

// out[i] = a[i] (op) b[i] for i < count. `out` may be `a` or `b`; other overlap is not allowed.
void reduce(DType dtype, ReduceOp op, const void* a, const void* b, void* out, std::size_t count);

// out[i] = parts[0][i] (op) parts[1][i] (op) ... from left to right, in one step: half types stay
// float32 in between and are rounded once. kAvg is the mean. kExactSum and kExactAvg: the exact sum
// or mean, rounded once, so that order and number of the parts do not matter; at most
// kMostExactRanks. At least two parts; `out` may be one of them, other overlap is not allowed.
void combine(DType dtype, ReduceOp op, std::span<const void* const> parts, void* out, std::size_t count);

// data[i] = data[i] * factor, computed in float32 for half types, in the type itself otherwise.
// Floating and complex types only.
void scale(DType dtype, void* data, double factor, std::size_t count);
// data[i] = data[i] / divisor, as torch divides: integers truncate towards zero.
void divide(DType dtype, void* data, long long divisor, std::size_t count);
// Makes the mean of `number` values from their sum: divide(), whose quotient is the nearest number
// that the type has, which a product with 1 / number is not.
void average(DType dtype, void* sum, int number, std::size_t count);

// Half <-> float32; `dtype` is kFloat16 or kBFloat16.
void widen(DType dtype, const void* half, float* wide, std::size_t count);
void narrow(DType dtype, const float* wide, void* half, std::size_t count);

}  // namespace altorch
