// SPDX-License-Identifier: BSD-3-Clause
// The element types that altorch moves and reduces: a row for each.
//
// What a library or a kernel calls them stands with that library: transports/mpi, gpu/nccl,
// device/kernels/names.cpp, reduction/kernels.inc.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/enum_table.h"

namespace altorch {

// The order is part of the wire fingerprint (runtime/fingerprint.h): append, never reorder.
enum class DType : std::uint8_t {
  kUInt8,
  kInt8,
  kUInt16,
  kInt16,
  kUInt32,
  kInt32,
  kUInt64,
  kInt64,
  kBool,
  kFloat16,
  kBFloat16,
  kFloat32,
  kFloat64,
  kComplex64,
  kComplex128,
  kFloat8E4M3FN,
  kFloat8E5M2,
  kFloat8E4M3FNUZ,
  kFloat8E5M2FNUZ,
  kFloat8E8M0FNU,
};
inline constexpr int kDTypeCount = 20;
template <>
inline constexpr int kCountOf<DType> = kDTypeCount;

enum class NumberClass : std::uint8_t { kUnsigned, kSigned, kBool, kHalf, kFloat, kComplex, kFloat8 };

struct DTypeTraits {
  const char* name;   // torch's, for messages
  std::size_t bytes;  // of one element
  NumberClass number;
  // Eight bytes that repeat and stand in a result that must not look healthy: NaN, or the extreme
  // of a type that has none. Larger elements hold it twice. Of bools, true: no value of theirs
  // could be told from a healthy one.
  std::uint64_t poison;
};

inline constexpr std::uint64_t kAllOnes = ~std::uint64_t{0};
inline constexpr EnumTable<DType, DTypeTraits> kDTypes({
    {DType::kUInt8, {"uint8", 1, NumberClass::kUnsigned, kAllOnes}},
    {DType::kInt8, {"int8", 1, NumberClass::kSigned, 0x8080808080808080u}},
    {DType::kUInt16, {"uint16", 2, NumberClass::kUnsigned, kAllOnes}},
    {DType::kInt16, {"int16", 2, NumberClass::kSigned, 0x8000800080008000u}},
    {DType::kUInt32, {"uint32", 4, NumberClass::kUnsigned, kAllOnes}},
    {DType::kInt32, {"int32", 4, NumberClass::kSigned, 0x8000000080000000u}},
    {DType::kUInt64, {"uint64", 8, NumberClass::kUnsigned, kAllOnes}},
    {DType::kInt64, {"int64", 8, NumberClass::kSigned, 0x8000000000000000u}},
    {DType::kBool, {"bool", 1, NumberClass::kBool, 0x0101010101010101u}},
    {DType::kFloat16, {"float16", 2, NumberClass::kHalf, kAllOnes}},
    {DType::kBFloat16, {"bfloat16", 2, NumberClass::kHalf, kAllOnes}},
    {DType::kFloat32, {"float32", 4, NumberClass::kFloat, kAllOnes}},
    {DType::kFloat64, {"float64", 8, NumberClass::kFloat, kAllOnes}},
    {DType::kComplex64, {"complex64", 8, NumberClass::kComplex, kAllOnes}},
    {DType::kComplex128, {"complex128", 16, NumberClass::kComplex, kAllOnes}},
    {DType::kFloat8E4M3FN, {"float8_e4m3fn", 1, NumberClass::kFloat8, kAllOnes}},
    {DType::kFloat8E5M2, {"float8_e5m2", 1, NumberClass::kFloat8, kAllOnes}},
    // Their only NaN.
    {DType::kFloat8E4M3FNUZ, {"float8_e4m3fnuz", 1, NumberClass::kFloat8, 0x8080808080808080u}},
    {DType::kFloat8E5M2FNUZ, {"float8_e5m2fnuz", 1, NumberClass::kFloat8, 0x8080808080808080u}},
    {DType::kFloat8E8M0FNU, {"float8_e8m0fnu", 1, NumberClass::kFloat8, kAllOnes}},
});

constexpr std::size_t size_of(DType dtype) { return kDTypes[dtype].bytes; }
constexpr const char* name_of(DType dtype) { return kDTypes[dtype].name; }
constexpr std::uint64_t poison_of(DType dtype) { return kDTypes[dtype].poison; }

constexpr bool is_float8(DType dtype) { return kDTypes[dtype].number == NumberClass::kFloat8; }
// Those that are reduced as well as moved. The others are scales, or of other vendors' GPUs.
constexpr bool is_reducible_float8(DType dtype) {
  return dtype == DType::kFloat8E4M3FN || dtype == DType::kFloat8E5M2;
}
constexpr bool is_half(DType dtype) { return kDTypes[dtype].number == NumberClass::kHalf; }
constexpr bool is_complex(DType dtype) { return kDTypes[dtype].number == NumberClass::kComplex; }
constexpr bool is_floating(DType dtype) {
  return is_half(dtype) || kDTypes[dtype].number == NumberClass::kFloat;
}
// Integers proper: bool is not one.
constexpr bool is_integral(DType dtype) {
  return kDTypes[dtype].number == NumberClass::kUnsigned || kDTypes[dtype].number == NumberClass::kSigned;
}

}  // namespace altorch
