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

// The result of one element, whose parts have been added to `sum`. part(i): what rank i has of it.
// It is read again where the sum is not proved to be exact.
template <class Number, bool kMean, class Part>
AL_DEVICE typename Number::Stored finished(typename Number::Computed sum, int number, const Part& part) {
  if constexpr (requires { Number::template finish<kMean>(sum, number, part); }) {
    return Number::template finish<kMean>(sum, number, part);
  } else {
    if constexpr (kMean) sum = Number::mean(sum, number);
    return Number::narrow(sum);
  }
}

AL_DEVICE bool is_power_of_two(int number) { return (number & (number - 1)) == 0; }

// Makes an exact sum the mean, or leaves it.
template <bool kMean>
AL_DEVICE double divided(double sum, int number) {
  if constexpr (!kMean) return sum;
  return is_power_of_two(number) ? sum * (1.0 / number) : exact::odd_quotient(sum, number);
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

// Of sums that are not proved to be right. It is rarely called: `part` is a copy, because what it
// refers to would have to lie in memory.
template <class Format, bool kMean, class Stored, class Part>
AL_DEVICE Stored summed_with_care(int number, Part part) {
  return with_bits<Stored>(exact::rounded_sum<Format>(number, kMean ? static_cast<unsigned>(number) : 1u,
                                                      [part](int i) { return bits_of(part(i)); }));
}

// Two values: one addition, rounded once. In float the sum of two half types is rounded as if at
// once, for float has twice their bits and two more (docs/exact.md).
template <class Base, class Format>
struct ExactOfTwo : Base {
  using Stored = typename Base::Stored;
  using Computed = typename Base::Computed;
  AL_DEVICE static Computed add(Computed a, Computed b) { return a + b; }
  template <bool kMean, class Part>
  AL_DEVICE static Stored finish(Computed sum, int number, const Part& part) {
    if (sum != sum) return with_bits<Stored>(Format::kNan);
    if constexpr (!kMean) return Base::narrow(sum);
    if (sum != 0 && exact::doubt_of_range(sum) != 0) return summed_with_care<Format, kMean, Stored>(number, part);
    return Base::narrow(sum * Computed(0.5));
  }
};
// What two ranks take for a number.
template <class Number>
struct ForTwo {
  using Type = Number;
};
template <class Number>
  requires requires { typename Number::OfTwo; }
struct ForTwo<Number> {
  using Type = typename Number::OfTwo;
};

// In float64, every sum of float16 is exact.
struct ExactFloat16 {
  using OfTwo = ExactOfTwo<Float16, exact::Half>;
  using Stored = unsigned short;
  using Computed = double;
  AL_DEVICE static double widen(unsigned short half) { return Float16::widen(half); }
  AL_DEVICE static double add(double a, double b) { return a + b; }
  template <bool kMean, class Part>
  AL_DEVICE static unsigned short finish(double sum, int number, const Part&) {
    const float odd = exact::narrowed_odd(divided<kMean>(sum, number));
    return odd == odd ? Float16::narrow(odd) : with_bits<unsigned short>(exact::Half::kNan);
  }
};

// GPUs add float faster than double, and in two of them sums of bfloat16 and float32 are nearly
// always exact. `error` is NaN where that is not so.
struct FloatPair {
  float sum, error;
};
struct ExactBFloat16 {
  using OfTwo = ExactOfTwo<BFloat16, exact::Brain>;
  using Stored = unsigned short;
  using Computed = FloatPair;
  AL_DEVICE static FloatPair widen(unsigned short half) { return {BFloat16::widen(half), 0}; }
  AL_DEVICE static FloatPair add(const FloatPair& a, const FloatPair& b) {
    const auto first = exact::two_sum(a.sum, b.sum), second = exact::two_sum(a.error, first.error);
    return {first.sum, second.error == 0 ? second.sum : __builtin_bit_cast(float, 0x7FC00000u)};
  }
  template <bool kMean, class Part>
  AL_DEVICE static unsigned short finish(const FloatPair& sum, int number, const Part& part) {
    const auto whole = exact::two_sum(sum.sum, sum.error);
    const bool usual = !kMean || (is_power_of_two(number) && exact::doubt_of_range(whole.sum) == 0);
    if (!usual || !(whole.error - whole.error == 0))
      return summed_with_care<exact::Brain, kMean, unsigned short>(number, part);
    const float value = sum.error == 0 ? sum.sum : whole.sum;  // -0 stays
    const float odd = whole.error == 0 ? value : exact::made_odd(whole.sum, whole.error);
    return BFloat16::narrow(kMean ? odd * (1.0f / static_cast<float>(number)) : odd);
  }
};

template <class Real>
struct LongNumber {
  using Stored = Real;
  using Computed = exact::LongSum<Real>;
  AL_DEVICE static Computed widen(Real value) { return {value, 0, 0}; }
  AL_DEVICE static Computed add(const Computed& a, const Computed& b) { return exact::plus(a, b.sum); }
};

struct ExactFloat32 : LongNumber<float> {
  using OfTwo = ExactOfTwo<Plain<float>, exact::Single>;
  template <bool kMean, class Part>
  AL_DEVICE static float finish(const Computed& sum, int number, const Part& part) {
    if (!kMean || is_power_of_two(number)) {
      const auto made = kMean ? exact::mean_by_power_of_two(sum, static_cast<float>(number))
                              : exact::rounding_of(sum.sum, sum.error, sum.unknown);
      if (made.doubt == 0) return made.value;
    } else {
      const auto whole = exact::two_sum(static_cast<double>(sum.sum), static_cast<double>(sum.error));
      const double value = sum.error == 0 ? sum.sum : whole.sum;  // -0 stays
      if (sum.unknown == 0 && whole.error == 0) return static_cast<float>(exact::odd_quotient(value, number));
    }
    return summed_with_care<exact::Single, kMean, float>(number, part);
  }
};

struct ExactFloat64 : LongNumber<double> {
  using OfTwo = ExactOfTwo<Plain<double>, exact::Double>;
  template <bool kMean, class Part>
  AL_DEVICE static double finish(const Computed& sum, int number, const Part& part) {
    const auto made = !kMean                     ? exact::rounding_of(sum.sum, sum.error, sum.unknown)
                      : is_power_of_two(number) ? exact::mean_by_power_of_two(sum, static_cast<double>(number))
                                                 : exact::mean_of(sum, static_cast<double>(number));
    return made.doubt == 0 ? made.value : summed_with_care<exact::Double, kMean, double>(number, part);
  }
};

}  // namespace altorch::kernels
