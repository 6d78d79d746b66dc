// SPDX-License-Identifier: BSD-3-Clause
// Numbers whose sums are exact and rounded once (docs/exact.md). What adds them up is
// base/exact_sum.inc, the same as on CPUs. Include after numbers.cuh.
#ifndef __CUDACC__
namespace altorch::kernels {
#include "base/exact_sum.inc"
}
#endif

namespace altorch::kernels {

struct ExactSum {
  template <class Number, class T>
  AL_DEVICE static T apply(const T& a, const T& b) {
    return Number::add(a, b);
  }
};

// Returns the result of one element, whose parts have been added to `sum`. part(i) reads rank i's
// value again, where the sum is not proved exact.
template <class Number, bool kMean, class Part>
AL_DEVICE typename Number::Stored finalize(typename Number::Computed sum, int number, const Part& part) {
  if constexpr (requires { Number::template finish<kMean>(sum, number, part); }) {
    return Number::template finish<kMean>(sum, number, part);
  } else {
    if constexpr (kMean) sum = Number::mean(sum, number);
    return Number::narrow(sum);
  }
}

// Makes an exact sum the mean, or leaves it.
template <bool kMean>
AL_DEVICE double divided(double sum, int number) {
  if constexpr (!kMean) return sum;
  return exact::is_power_of_two(number) ? sum * (1.0 / number) : exact::divide_round_to_odd(sum, number);
}

// The bits of an element as a number, and back.
AL_DEVICE exact::Bits bits_of(unsigned short half) { return half; }
AL_DEVICE exact::Bits bits_of(float value) { return __builtin_bit_cast(unsigned, value); }
AL_DEVICE exact::Bits bits_of(double value) { return __builtin_bit_cast(exact::Bits, value); }
template <class Stored>
AL_DEVICE Stored with_bits(exact::Bits bits) {
  if constexpr (sizeof(Stored) == 2) {
    return static_cast<Stored>(bits);
  } else if constexpr (sizeof(Stored) == 4) {
    return __builtin_bit_cast(Stored, static_cast<unsigned>(bits));
  } else {
    return __builtin_bit_cast(Stored, bits);
  }
}

// Sums that are not proved correct take this path. `part` is passed by value, so that the caller's
// captures stay in registers.
template <class Format, bool kMean, class Stored, class Part>
AL_DEVICE Stored slow_path_sum(int number, Part part) {
  return with_bits<Stored>(exact::fixed_point_sum<Format>(number, kMean ? static_cast<unsigned>(number) : 1u,
                                                      [part](int i) { return bits_of(part(i)); }));
}

// Two values: one addition, rounded once. Of half types, rounding to float first changes nothing
// (docs/exact.md).
template <class Base, class Format>
struct ExactOfTwo : Base {
  using Stored = typename Base::Stored;
  using Computed = typename Base::Computed;
  AL_DEVICE static Computed add(Computed a, Computed b) { return a + b; }
  template <bool kMean, class Part>
  AL_DEVICE static Stored finish(Computed sum, int number, const Part& part) {
    if (sum != sum) return with_bits<Stored>(Format::kNan);
    if constexpr (!kMean) return Base::narrow(sum);
    if (sum != 0 && exact::out_of_safe_range(sum) != 0) return slow_path_sum<Format, kMean, Stored>(number, part);
    return Base::narrow(sum * Computed(0.5));
  }
};
// The number type that kernels use with two ranks.
template <class Number>
struct TwoRankNumber {
  using Type = Number;
};
template <class Number>
  requires requires { typename Number::OfTwo; }
struct TwoRankNumber<Number> {
  using Type = typename Number::OfTwo;
};

// In float64, every sum of float16 is exact.
struct ExactFloat16 {
  using OfTwo = ExactOfTwo<Float16, exact::Float16Format>;
  using Stored = unsigned short;
  using Computed = double;
  AL_DEVICE static double widen(unsigned short half) { return Float16::widen(half); }
  AL_DEVICE static double add(double a, double b) { return a + b; }
  template <bool kMean, class Part>
  AL_DEVICE static unsigned short finish(double sum, int number, const Part&) {
    const float odd = exact::to_float_round_to_odd(divided<kMean>(sum, number));
    return odd == odd ? Float16::narrow(odd) : with_bits<unsigned short>(exact::Float16Format::kNan);
  }
};

// So is every sum of float8.
template <class Format>
struct ExactFloat8 {
  using Stored = unsigned char;
  using Computed = double;
  AL_DEVICE static double widen(unsigned char byte) { return float8::widen<Format>(byte); }
  AL_DEVICE static double add(double a, double b) { return a + b; }
  template <bool kMean, class Part>
  AL_DEVICE static unsigned char finish(double sum, int number, const Part&) {
    const float odd = exact::to_float_round_to_odd(divided<kMean>(sum, number));
    return odd == odd ? float8::narrow<Format>(odd) : static_cast<unsigned char>(Format::kNan);
  }
};
using ExactFloat8E4M3FN = ExactFloat8<float8::E4M3FN>;
using ExactFloat8E5M2 = ExactFloat8<float8::E5M2>;

// GPUs add float faster than double, and in two of them sums of bfloat16 and float32 are nearly
// always exact. `error` is NaN where that is not so.
struct FloatPair {
  float sum, error;
};
struct ExactBFloat16 {
  using OfTwo = ExactOfTwo<BFloat16, exact::BFloat16Format>;
  using Stored = unsigned short;
  using Computed = FloatPair;
  AL_DEVICE static FloatPair widen(unsigned short half) { return {BFloat16::widen(half), 0}; }
  AL_DEVICE static FloatPair add(const FloatPair& a, const FloatPair& b) {
    const auto first = exact::two_sum(a.sum, b.sum), second = exact::two_sum(a.error, first.error);
    return {first.sum, second.error == 0 ? second.sum : with_bits<float>(exact::Float32Format::kNan)};
  }
  template <bool kMean, class Part>
  AL_DEVICE static unsigned short finish(const FloatPair& sum, int number, const Part& part) {
    const auto whole = exact::two_sum(sum.sum, sum.error);
    const bool usual = !kMean || (exact::is_power_of_two(number) && exact::out_of_safe_range(whole.sum) == 0);
    if (!usual || !(whole.error - whole.error == 0))
      return slow_path_sum<exact::BFloat16Format, kMean, unsigned short>(number, part);
    const float value = exact::keep_negative_zero(sum.sum, sum.error, whole.sum);
    const float odd = whole.error == 0 ? value : exact::round_to_odd(whole.sum, whole.error);
    return BFloat16::narrow(kMean ? odd * (1.0f / static_cast<float>(number)) : odd);
  }
};

template <class Real>
struct CompensatedNumber {
  using Stored = Real;
  using Computed = exact::CompensatedSum<Real>;
  AL_DEVICE static Computed widen(Real value) { return {value, 0, 0}; }
  AL_DEVICE static Computed add(const Computed& a, const Computed& b) { return exact::add_compensated(a, b.sum); }
};

struct ExactFloat32 : CompensatedNumber<float> {
  using OfTwo = ExactOfTwo<Plain<float>, exact::Float32Format>;
  template <bool kMean, class Part>
  AL_DEVICE static float finish(const Computed& sum, int number, const Part& part) {
    if (!kMean || exact::is_power_of_two(number)) {
      const auto made = kMean ? exact::round_mean_of_power_of_two(sum, static_cast<float>(number))
                              : exact::round_sum(sum);
      if (made.unproven == 0) return made.value;
    } else {
      const auto whole = exact::two_sum(static_cast<double>(sum.sum), static_cast<double>(sum.error));
      const double value = exact::keep_negative_zero<double>(sum.sum, sum.error, whole.sum);
      if (sum.error_bound == 0 && whole.error == 0) return static_cast<float>(exact::divide_round_to_odd(value, number));
    }
    return slow_path_sum<exact::Float32Format, kMean, float>(number, part);
  }
};

struct ExactFloat64 : CompensatedNumber<double> {
  using OfTwo = ExactOfTwo<Plain<double>, exact::Float64Format>;
  template <bool kMean, class Part>
  AL_DEVICE static double finish(const Computed& sum, int number, const Part& part) {
    const double divisor = number;
    const auto made = !kMean                           ? exact::round_sum(sum)
                      : exact::is_power_of_two(number) ? exact::round_mean_of_power_of_two(sum, divisor)
                                                       : exact::round_mean(sum, divisor);
    return made.unproven == 0 ? made.value : slow_path_sum<exact::Float64Format, kMean, double>(number, part);
  }
};

}  // namespace altorch::kernels
