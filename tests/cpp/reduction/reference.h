// SPDX-License-Identifier: BSD-3-Clause
// What a reduction must give, computed another way than the kernels do: integers in 128 bits,
// floating types in float64 with every rounding spelled out, halves decoded and encoded bit by bit.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "base/dtype.h"
#include "base/reduce_op.h"

namespace altorch::reference {

inline constexpr ReduceOp kAllOps[] = {ReduceOp::kSum, ReduceOp::kAvg,  ReduceOp::kProduct,
                                       ReduceOp::kMin, ReduceOp::kMax,  ReduceOp::kBand,
                                       ReduceOp::kBor, ReduceOp::kBxor, ReduceOp::kPremulSum};

inline std::vector<DType> all_dtypes() {
  std::vector<DType> dtypes;
  for (int i = 0; i < kDTypeCount; ++i) dtypes.push_back(static_cast<DType>(i));
  return dtypes;
}

struct HalfFormat {
  int exponent_bits, mantissa_bits;
  int bias() const { return (1 << (exponent_bits - 1)) - 1; }
};
inline HalfFormat format_of(DType dtype) {
  return dtype == DType::kFloat16 ? HalfFormat{5, 10} : HalfFormat{8, 7};
}

inline double decode_half(DType dtype, std::uint16_t bits) {
  const HalfFormat format = format_of(dtype);
  const int mantissa = bits & ((1 << format.mantissa_bits) - 1);
  const int exponent = (bits >> format.mantissa_bits) & ((1 << format.exponent_bits) - 1);
  const double sign = (bits & 0x8000) != 0 ? -1.0 : 1.0;
  if (exponent == (1 << format.exponent_bits) - 1) return mantissa != 0 ? NAN : sign * INFINITY;
  const int power = std::max(exponent, 1) - format.bias() - format.mantissa_bits;
  const int significand = exponent == 0 ? mantissa : mantissa + (1 << format.mantissa_bits);
  return sign * std::ldexp(significand, power);
}

// To nearest, ties to even, in integer steps of the format's unit at this magnitude.
inline std::uint16_t encode_half(DType dtype, double value) {
  const HalfFormat format = format_of(dtype);
  const int infinity = ((1 << format.exponent_bits) - 1) << format.mantissa_bits;
  const int sign = std::signbit(value) ? 0x8000 : 0;
  if (std::isnan(value)) return static_cast<std::uint16_t>(infinity | (1 << (format.mantissa_bits - 1)));
  if (std::isinf(value)) return static_cast<std::uint16_t>(sign | infinity);
  const double magnitude = std::fabs(value);
  if (magnitude == 0) return static_cast<std::uint16_t>(sign);
  const int exponent = std::max(std::ilogb(magnitude), 1 - format.bias());
  const double steps = std::ldexp(magnitude, format.mantissa_bits - exponent);
  double whole = std::floor(steps);
  const double rest = steps - whole;
  if (rest > 0.5 || (rest == 0.5 && std::fmod(whole, 2) != 0)) whole += 1;
  // A normal number's leading bit carries into the exponent field, as does an overflow of the
  // mantissa.
  const int field = (exponent + format.bias() - 1) * (1 << format.mantissa_bits) + static_cast<int>(whole);
  return static_cast<std::uint16_t>(sign | std::min(field, infinity));
}

// The numbers of float8_e4m3fn and float8_e5m2, by the tables of their specification.
inline double decode_float8(DType dtype, unsigned bits) {
  const bool is_e4m3 = dtype == DType::kFloat8E4M3FN;
  const int mantissa_bits = is_e4m3 ? 3 : 2, bias = is_e4m3 ? 7 : 15;
  const int magnitude = static_cast<int>(bits & 0x7F);
  const double sign = (bits & 0x80) != 0 ? -1.0 : 1.0;
  if (magnitude > (is_e4m3 ? 0x7E : 0x7C)) return NAN;
  if (!is_e4m3 && magnitude == 0x7C) return sign * INFINITY;
  const int fraction = magnitude % (1 << mantissa_bits), exponent = magnitude >> mantissa_bits;
  const int significand = exponent == 0 ? fraction : fraction + (1 << mantissa_bits);
  return sign * std::ldexp(significand, std::max(exponent, 1) - bias - mantissa_bits);
}
// To nearest, ties to even, by trying all numbers. e5m2: as if 65536, which is infinity, followed
// the largest one.
inline unsigned encode_float8(DType dtype, double value) {
  const unsigned sign = std::signbit(value) ? 0x80 : 0;
  if (std::isnan(value)) return 0x7F;
  const double size = std::min(std::fabs(value), 65536.0);
  const auto distance = [&](unsigned bits) {
    return std::fabs(size -
                     (bits == 0x7C && dtype == DType::kFloat8E5M2 ? 65536.0 : decode_float8(dtype, bits)));
  };
  unsigned nearest = 0;
  for (unsigned bits = 1; bits <= (dtype == DType::kFloat8E4M3FN ? 0x7Eu : 0x7Cu); ++bits) {
    const double off = distance(bits);
    if (off < distance(nearest) || (off == distance(nearest) && bits % 2 == 0)) nearest = bits;
  }
  return sign | nearest;
}

template <class T>
T get(const void* data, std::size_t index) {
  T value;
  std::memcpy(&value, static_cast<const char*>(data) + index * sizeof(T), sizeof(T));
  return value;
}
template <class T>
void put(void* data, std::size_t index, T value) {
  std::memcpy(static_cast<char*>(data) + index * sizeof(T), &value, sizeof(T));
}

template <class T>
T combine_integer(ReduceOp op, T a, T b) {
  const auto wide_a = static_cast<__int128>(a), wide_b = static_cast<__int128>(b);
  switch (op) {
    case ReduceOp::kSum:
    case ReduceOp::kAvg:
      return static_cast<T>(wide_a + wide_b);
    case ReduceOp::kProduct:
      return static_cast<T>(static_cast<unsigned __int128>(wide_a) * static_cast<unsigned __int128>(wide_b));
    case ReduceOp::kMin:
      return wide_a < wide_b ? a : b;
    case ReduceOp::kMax:
      return wide_a > wide_b ? a : b;
    case ReduceOp::kBand:
      return static_cast<T>(wide_a & wide_b);
    case ReduceOp::kBor:
      return static_cast<T>(wide_a | wide_b);
    default:
      return static_cast<T>(wide_a ^ wide_b);
  }
}

inline bool combine_bool(ReduceOp op, bool a, bool b) {
  switch (op) {
    case ReduceOp::kSum:
    case ReduceOp::kMax:
    case ReduceOp::kBor:
      return a || b;
    case ReduceOp::kBxor:
      return a != b;
    default:
      return a && b;
  }
}

// Exact, or rounded so finely that rounding to float32 next gives the correctly rounded result.
inline double combine_real(ReduceOp op, double a, double b) {
  switch (op) {
    case ReduceOp::kProduct:
      return a * b;
    case ReduceOp::kMin:
      return std::isnan(a) ? a : std::isnan(b) ? b : b < a ? b : a;
    case ReduceOp::kMax:
      return std::isnan(a) ? a : std::isnan(b) ? b : b > a ? b : a;
    default:
      return a + b;
  }
}

// Volatile: each product is rounded before it is added, whatever the compiler would contract.
template <class Real>
void combine_complex(ReduceOp op, const void* a, const void* b, void* out, std::size_t index) {
  const Real left[2] = {get<Real>(a, 2 * index), get<Real>(a, 2 * index + 1)};
  const Real right[2] = {get<Real>(b, 2 * index), get<Real>(b, 2 * index + 1)};
  if (op == ReduceOp::kProduct) {
    volatile Real products[4] = {left[0] * right[0], left[1] * right[1], left[0] * right[1],
                                 left[1] * right[0]};
    put<Real>(out, 2 * index, products[0] - products[1]);
    put<Real>(out, 2 * index + 1, products[2] + products[3]);
  } else {
    put<Real>(out, 2 * index, left[0] + right[0]);
    put<Real>(out, 2 * index + 1, left[1] + right[1]);
  }
}

inline void combine(DType dtype, ReduceOp op, const void* a, const void* b, void* out, std::size_t i) {
  switch (dtype) {
#define ALTORCH_INTEGER_CASE(name, type) \
  case DType::name:                      \
    return put<type>(out, i, combine_integer<type>(op, get<type>(a, i), get<type>(b, i)));
    ALTORCH_INTEGER_CASE(kUInt8, std::uint8_t)
    ALTORCH_INTEGER_CASE(kInt8, std::int8_t)
    ALTORCH_INTEGER_CASE(kUInt16, std::uint16_t)
    ALTORCH_INTEGER_CASE(kInt16, std::int16_t)
    ALTORCH_INTEGER_CASE(kUInt32, std::uint32_t)
    ALTORCH_INTEGER_CASE(kInt32, std::int32_t)
    ALTORCH_INTEGER_CASE(kUInt64, std::uint64_t)
    ALTORCH_INTEGER_CASE(kInt64, std::int64_t)
#undef ALTORCH_INTEGER_CASE
    case DType::kBool:
      return put<std::uint8_t>(out, i,
                               combine_bool(op, get<std::uint8_t>(a, i) != 0, get<std::uint8_t>(b, i) != 0));
    case DType::kFloat16:
    case DType::kBFloat16: {
      const double exact = combine_real(op, decode_half(dtype, get<std::uint16_t>(a, i)),
                                        decode_half(dtype, get<std::uint16_t>(b, i)));
      return put<std::uint16_t>(out, i, encode_half(dtype, static_cast<float>(exact)));
    }
    case DType::kFloat8E4M3FN:
    case DType::kFloat8E5M2:
      return put<std::uint8_t>(out, i,
                               static_cast<std::uint8_t>(encode_float8(
                                   dtype, combine_real(op, decode_float8(dtype, get<std::uint8_t>(a, i)),
                                                       decode_float8(dtype, get<std::uint8_t>(b, i))))));
    case DType::kFloat32:
      return put<float>(out, i, static_cast<float>(combine_real(op, get<float>(a, i), get<float>(b, i))));
    case DType::kFloat64:
      return put<double>(out, i, combine_real(op, get<double>(a, i), get<double>(b, i)));
    case DType::kComplex64:
      return combine_complex<float>(op, a, b, out, i);
    default:
      return combine_complex<double>(op, a, b, out, i);
  }
}

inline bool is_nan_at(DType dtype, const void* data, std::size_t real_index) {
  if (is_half(dtype)) return std::isnan(decode_half(dtype, get<std::uint16_t>(data, real_index)));
  if (is_reducible_float8(dtype))
    return std::isnan(decode_float8(dtype, get<std::uint8_t>(data, real_index)));
  if (dtype == DType::kFloat32 || dtype == DType::kComplex64) return std::isnan(get<float>(data, real_index));
  if (dtype == DType::kFloat64 || dtype == DType::kComplex128) {
    return std::isnan(get<double>(data, real_index));
  }
  return false;
}

// Equal bits, but any NaN equals any other. Returns the first element that differs, or `count`.
inline std::size_t first_difference(DType dtype, const void* left, const void* right, std::size_t count) {
  const std::size_t parts = is_complex(dtype) ? 2 : 1;
  const std::size_t bytes = size_of(dtype) / parts;
  for (std::size_t i = 0; i < parts * count; ++i) {
    const auto* one = static_cast<const char*>(left) + i * bytes;
    const auto* other = static_cast<const char*>(right) + i * bytes;
    if (std::memcmp(one, other, bytes) == 0) continue;
    if (!(is_nan_at(dtype, left, i) && is_nan_at(dtype, right, i))) return i / parts;
  }
  return count;
}

// Random elements: integers and halves of any bits (so NaN, infinities and subnormals too), reals
// of many magnitudes with special values strewn in.
inline std::vector<unsigned char> random_elements(DType dtype, std::size_t count, std::mt19937_64& random) {
  std::vector<unsigned char> bytes(count * size_of(dtype));
  for (auto& byte : bytes) byte = static_cast<unsigned char>(random());
  const auto real = [&]() -> double {
    static const double specials[] = {0.0, -0.0,  1.0,    -1.0, INFINITY, -INFINITY,
                                      NAN, 1e-45, 1e-310, 3e38, 1.7e308,  -1e-40};
    if (random() % 8 == 0) return specials[random() % std::size(specials)];
    return std::ldexp(static_cast<double>(static_cast<std::int64_t>(random())),
                      static_cast<int>(random() % 40) - 80);
  };
  if (dtype == DType::kBool) {
    for (auto& byte : bytes) byte = random() % 2 == 0 ? 0 : (random() % 2 == 0 ? 1 : byte);
  } else if (dtype == DType::kFloat32 || dtype == DType::kComplex64) {
    for (std::size_t i = 0; i < bytes.size() / 4; ++i)
      put<float>(bytes.data(), i, static_cast<float>(real()));
  } else if (dtype == DType::kFloat64 || dtype == DType::kComplex128) {
    for (std::size_t i = 0; i < bytes.size() / 8; ++i) put<double>(bytes.data(), i, real());
  }
  return bytes;
}

inline std::string describe(const char* level, DType dtype, ReduceOp op) {
  return std::string(level) + " " + name_of(dtype) + " " + name_of(op);
}

}  // namespace altorch::reference
