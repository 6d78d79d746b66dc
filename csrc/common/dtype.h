// The element types that altorch moves and reduces.
//
// The order is part of the wire fingerprint (engine/fingerprint.h): append, never reorder.
#pragma once

#include <cstddef>
#include <cstdint>

namespace altorch {

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

// Bytes of one element.
constexpr std::size_t size_of(DType dtype) {
  constexpr std::size_t sizes[kDTypeCount] = {1, 1, 2, 2, 4, 4, 8, 8, 1, 2, 2, 4, 8, 8, 16, 1, 1, 1, 1, 1};
  return sizes[static_cast<int>(dtype)];
}

// torch's name of the type, for messages: "float32", "bfloat16", "float8_e5m2".
constexpr const char* name_of(DType dtype) {
  constexpr const char* names[kDTypeCount] = {
      "uint8",           "int8",          "uint16",     "int16",         "uint32",      "int32",
      "uint64",          "int64",         "bool",       "float16",       "bfloat16",    "float32",
      "float64",         "complex64",     "complex128", "float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz",
      "float8_e5m2fnuz", "float8_e8m0fnu"};
  return names[static_cast<int>(dtype)];
}

constexpr bool is_float8(DType dtype) { return dtype >= DType::kFloat8E4M3FN; }
constexpr bool is_half(DType dtype) { return dtype == DType::kFloat16 || dtype == DType::kBFloat16; }
constexpr bool is_complex(DType dtype) { return dtype == DType::kComplex64 || dtype == DType::kComplex128; }
constexpr bool is_floating(DType dtype) {
  return is_half(dtype) || dtype == DType::kFloat32 || dtype == DType::kFloat64;
}
// Integers proper: bool is not one.
constexpr bool is_integral(DType dtype) { return dtype < DType::kBool; }

}  // namespace altorch
