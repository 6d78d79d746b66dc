// SPDX-License-Identifier: BSD-3-Clause
// The exact sum of floating-point numbers, computed another way than the kernels do: with integers
// of any length, in units of half of the least number, and a search for the nearest number of the
// type.
#pragma once

#include <algorithm>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "base/dtype.h"
#include "reduction/reference.h"

namespace altorch::reference {

// A natural number, the lowest 32 bits first.
using Natural = std::vector<std::uint32_t>;

inline Natural shifted(std::uint64_t value, int places) {
  Natural made(static_cast<std::size_t>(places / 32), 0);
  const unsigned __int128 wide = static_cast<unsigned __int128>(value) << (places % 32);
  for (int i = 0; i < 4; ++i) made.push_back(static_cast<std::uint32_t>(wide >> (32 * i)));
  return made;
}
inline int compare(const Natural& a, const Natural& b) {
  for (std::size_t i = std::max(a.size(), b.size()); i-- > 0;) {
    const std::uint32_t left = i < a.size() ? a[i] : 0, right = i < b.size() ? b[i] : 0;
    if (left != right) return left < right ? -1 : 1;
  }
  return 0;
}
inline void add(Natural& sum, const Natural& value) {
  sum.resize(std::max(sum.size(), value.size()) + 1);
  std::uint64_t carry = 0;
  for (std::size_t i = 0; i < sum.size(); ++i) {
    carry += std::uint64_t{sum[i]} + (i < value.size() ? value[i] : 0);
    sum[i] = static_cast<std::uint32_t>(carry);
    carry >>= 32;
  }
}
// a - b, where a >= b.
inline Natural difference(const Natural& a, const Natural& b) {
  Natural made = a;
  std::int64_t borrow = 0;
  for (std::size_t i = 0; i < made.size(); ++i) {
    const std::int64_t digit = std::int64_t{made[i]} - (i < b.size() ? b[i] : 0) - borrow;
    borrow = digit < 0;
    made[i] = static_cast<std::uint32_t>(digit);
  }
  return made;
}
inline Natural product(const Natural& a, std::uint32_t factor) {
  Natural made;
  std::uint64_t carry = 0;
  for (const std::uint32_t digit : a) {
    carry += std::uint64_t{digit} * factor;
    made.push_back(static_cast<std::uint32_t>(carry));
    carry >>= 32;
  }
  made.push_back(static_cast<std::uint32_t>(carry));
  return made;
}

struct FloatFormat {
  int mantissa, exponent;
  bool has_infinity = true;
  // The bits after those of the largest number: infinity, or the NaN of a type that has none, whose
  // sums stay at the largest number.
  std::uint64_t infinity() const {
    const std::uint64_t largest_field = ((std::uint64_t{1} << exponent) - 1) << mantissa;
    return has_infinity ? largest_field : largest_field | ((std::uint64_t{1} << mantissa) - 1);
  }
  // What sums are that are no numbers. float8 has the NaN that torch converts to.
  std::uint64_t nan() const {
    if (mantissa < 4) return sign() - 1;
    return infinity() | std::uint64_t{1} << (mantissa - 1);
  }
  std::uint64_t sign() const { return std::uint64_t{1} << (mantissa + exponent); }
  // The value of these bits, in units of half of the least number. Of infinity: of the number that
  // would follow the largest one.
  Natural value(std::uint64_t bits) const {
    const auto field = static_cast<int>(bits >> mantissa);
    const std::uint64_t fraction = bits & ((std::uint64_t{1} << mantissa) - 1);
    if (field == 0) return shifted(fraction, 1);
    return shifted(fraction | std::uint64_t{1} << mantissa, field);
  }
};
inline FloatFormat float_format_of(DType dtype) {
  return dtype == DType::kFloat8E4M3FN ? FloatFormat{3, 4, false}
         : dtype == DType::kFloat8E5M2 ? FloatFormat{2, 5}
         : dtype == DType::kFloat16    ? FloatFormat{10, 5}
         : dtype == DType::kBFloat16   ? FloatFormat{7, 8}
         : dtype == DType::kFloat32    ? FloatFormat{23, 8}
                                       : FloatFormat{52, 11};
}

// The sum of these values, by their bits, divided by `divisor`.
inline std::uint64_t exact_sum(DType dtype, const std::vector<std::uint64_t>& values, std::uint32_t divisor) {
  const FloatFormat format = float_format_of(dtype);
  Natural up, down;
  bool plus_infinity = false, minus_infinity = false, nan = false, all_minus = true;
  for (const std::uint64_t bits : values) {
    const bool minus = bits & format.sign();
    const std::uint64_t magnitude = bits & (format.sign() - 1);
    all_minus &= minus;
    if (magnitude > format.infinity() || magnitude == format.nan()) nan = true;
    if (magnitude == format.infinity()) (minus ? minus_infinity : plus_infinity) = true;
    if (magnitude < format.infinity()) add(minus ? down : up, format.value(magnitude));
  }
  if (nan || (plus_infinity && minus_infinity)) return format.nan();
  if (plus_infinity) return format.infinity();
  if (minus_infinity) return format.infinity() | format.sign();
  const bool minus = compare(up, down) < 0;
  const Natural size = minus ? difference(down, up) : difference(up, down);
  // The largest number that is not above the quotient.
  std::uint64_t low = 0, high = format.infinity();
  while (high - low > 1) {
    const std::uint64_t middle = low + (high - low) / 2;
    (compare(product(format.value(middle), divisor), size) <= 0 ? low : high) = middle;
  }
  if (compare(size, {}) == 0) return all_minus ? format.sign() : 0;
  Natural both = format.value(low);
  add(both, format.value(low + 1));
  const int order = compare(product(size, 2), product(both, divisor));
  std::uint64_t bits = order < 0 || (order == 0 && low % 2 == 0) ? low : low + 1;
  if (!format.has_infinity) bits = std::min(bits, format.infinity() - 1);
  return bits | (minus ? format.sign() : 0);
}

// Values that make a sum difficult: of exponents over the whole range, near to each other's
// negatives, subnormal, and a few that are no numbers.
inline std::vector<std::uint64_t> difficult_values(DType dtype, std::size_t number, std::mt19937_64& random) {
  const FloatFormat format = float_format_of(dtype);
  const auto below = [&](std::uint64_t end) { return random() % end; };
  std::vector<std::uint64_t> values;
  const std::uint64_t kind = below(8);
  const std::uint64_t around = below(std::uint64_t{1} << format.exponent);
  while (values.size() < number) {
    std::uint64_t bits = random() & (format.sign() | (format.sign() - 1));
    const auto with_exponent = [&](std::uint64_t field) {
      const std::uint64_t most = (std::uint64_t{1} << format.exponent) - 2;
      bits = (bits & (format.sign() | ((std::uint64_t{1} << format.mantissa) - 1))) | std::min(field, most)
                                                                                          << format.mantissa;
    };
    if (kind < 2) {  // numbers of about the same size
      with_exponent(around + below(4));
    } else if (kind < 4) {  // not many bits apart
      with_exponent(around + below(static_cast<std::uint64_t>(format.mantissa) * 2 + 3));
      if (below(2) == 0)
        bits &= ~((std::uint64_t{1} << below(static_cast<std::uint64_t>(format.mantissa))) - 1);
    } else if (kind == 4 && !values.empty()) {  // what cancels, or nearly so
      bits = (values.back() ^ format.sign()) + (below(2) == 0 ? 0 : below(3));
    } else if (kind == 5) {  // ties: few bits
      with_exponent(around + below(static_cast<std::uint64_t>(format.mantissa) + 3));
      bits &= ~((std::uint64_t{1} << format.mantissa) - 1) | (std::uint64_t{1} << (format.mantissa - 1));
    } else if (kind == 6) {
      with_exponent(below(3));
    } else {
      with_exponent(below(std::uint64_t{1} << format.exponent));
    }
    if (below(300) == 0) bits = format.infinity() | (bits & format.sign());
    if (below(600) == 0) bits = format.infinity() | 1;
    if (below(20) == 0) bits &= format.sign();
    values.push_back(bits);
  }
  std::shuffle(values.begin(), values.end(), random);
  return values;
}

}  // namespace altorch::reference
