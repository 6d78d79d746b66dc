// SPDX-License-Identifier: BSD-3-Clause
// Packs of values in 8 bits: 14 codes and their scale in 16 bytes (reduction/quantized.h has the
// layout). A thread reads and writes whole packs. The arithmetic is that of
// reduction/quantized.inc, so that GPUs and CPUs give the same bits. Include after reduce.cuh.

namespace altorch::kernels {

constexpr int kQuantizedRows = 7, kQuantizedPacks = 60;  // of a unit
constexpr int kQuantizedRow = 2 * kQuantizedPacks;       // elements
constexpr int kQuantizedUnit = kQuantizedRows * kQuantizedRow;
static_assert(kQuantizedUnit == QuantizedChunks::kUnit);

AL_DEVICE float multiply_add(float a, float b, float c) {
#ifdef __CUDACC__
  return __fmaf_rn(a, b, c);
#else
  return a * b + c;
#endif
}

// Codes of a pack, two at a time. encode(): in the low bytes of a word. set() and add(): the values
// of the codes of bytes `at` and `at` + 1. A scale has 8 bits of mantissa, so that the product of a
// code and its scale is exact, and it does not matter where the compiler fuses.
struct Int8Code {
  static constexpr float kLargest = 127;

  AL_DEVICE explicit Int8Code(float scale) : scale(scale) {}
  // To nearest, ties to even: the last bit of such a sum is worth 1, so that its last byte is the
  // integer.
  AL_DEVICE static unsigned rounded(float value) { return __builtin_bit_cast(unsigned, value + 12582912.0f); }
  AL_DEVICE static unsigned encode(float first, float second) {
#ifdef __CUDACC__
    return __byte_perm(rounded(first), rounded(second), 0x0040);
#else
    return (rounded(first) & 0xFFu) | (rounded(second) & 0xFFu) << 8;
#endif
  }
  // Without a conversion of integers, of which a GPU does few at a time: (2^23 + 128 + code) -
  // (2^23 + 128). The scale is multiplied later: 2^23 times a large one overflows.
  AL_DEVICE static float decode(unsigned word, unsigned at) {
#ifdef __CUDACC__
    return __builtin_bit_cast(float, __byte_perm(word ^ 0x80808080u, 0x4B000000u, 0x7440 | at)) - 8388736.0f;
#else
    return static_cast<float>(static_cast<signed char>(word >> 8 * at));
#endif
  }
  AL_DEVICE void set(float* values, unsigned word, unsigned at) const {
    values[0] = decode(word, at) * scale;
    values[1] = decode(word, at + 1) * scale;
  }
  AL_DEVICE void add(float* values, unsigned word, unsigned at) const {
    values[0] = multiply_add(decode(word, at), scale, values[0]);
    values[1] = multiply_add(decode(word, at + 1), scale, values[1]);
  }

  float scale;
};
struct Float8Code {
  static constexpr float kLargest = 448;

  AL_DEVICE explicit Float8Code(float scale) : scale(scale) {}
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 890
  AL_DEVICE static unsigned encode(float first, float second) {
    unsigned short both;
    asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(both) : "f"(second), "f"(first));
    return both;
  }
  AL_DEVICE static void decode(float* codes, unsigned word, unsigned at) {
    unsigned both;
    asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(both) : "h"(static_cast<unsigned short>(word >> 8 * at)));
    codes[0] = Float16::widen(static_cast<unsigned short>(both));
    codes[1] = Float16::widen(static_cast<unsigned short>(both >> 16));
  }
#else
  AL_DEVICE static unsigned encode(float first, float second) {
    return float8::narrow<float8::E4M3FN>(first) |
           static_cast<unsigned>(float8::narrow<float8::E4M3FN>(second)) << 8;
  }
  AL_DEVICE static void decode(float* codes, unsigned word, unsigned at) {
    AL_UNROLL for (unsigned i = 0; i < 2; ++i)
      codes[i] = float8::widen<float8::E4M3FN>(static_cast<unsigned char>(word >> 8 * (at + i)));
  }
#endif
  AL_DEVICE void set(float* values, unsigned word, unsigned at) const {
    decode(values, word, at);
    values[0] *= scale;
    values[1] *= scale;
  }
  AL_DEVICE void add(float* values, unsigned word, unsigned at) const {
    float codes[2];
    decode(codes, word, at);
    values[0] = multiply_add(codes[0], scale, values[0]);
    values[1] = multiply_add(codes[1], scale, values[1]);
  }

  float scale;
};

struct alignas(16) QuantizedPack {
  unsigned words[4];
};

// Elements from the first value of a pack to its last, both included.
constexpr int kQuantizedSpan = kQuantizedUnit - kQuantizedRow + 2;

// All values of a pack, in the type of the tensor.
template <class Stored>
struct QuantizedPairs {
  struct alignas(2 * sizeof(Stored)) Pair {
    Stored first, second;
  };
  Pair pairs[kQuantizedRows];

  AL_DEVICE static bool is_aligned(const Stored* at) { return reinterpret_cast<u64>(at) % sizeof(Pair) == 0; }
  AL_DEVICE void load(const Stored* from) {
    AL_UNROLL for (int row = 0; row < kQuantizedRows; ++row)
      pairs[row] = *reinterpret_cast<const Pair*>(from + row * kQuantizedRow);
  }
};

// The values of a pack in float32, row after row.
struct QuantizedValues {
  float values[2 * kQuantizedRows];

  // Loads the values of a pack that begins at `from`. Only `count` elements are there: values after
  // them are zeros.
  template <class Number>
  AL_DEVICE void load(const typename Number::Stored* from, i64 count) {
    AL_UNROLL for (int i = 0; i < 2 * kQuantizedRows; ++i) {
      const int at = i / 2 * kQuantizedRow + i % 2;
      values[i] = at < count ? Number::widen(from[at]) : 0.0f;
    }
  }
  template <class Number>
  AL_DEVICE void load(const QuantizedPairs<typename Number::Stored>& pairs) {
    AL_UNROLL for (int row = 0; row < kQuantizedRows; ++row) {
      if constexpr (requires { Number::widen_pair(0u, values); }) {
        Number::widen_pair(__builtin_bit_cast(unsigned, pairs.pairs[row]), values + 2 * row);
      } else {
        values[2 * row] = Number::widen(pairs.pairs[row].first);
        values[2 * row + 1] = Number::widen(pairs.pairs[row].second);
      }
    }
  }
  template <class Number>
  AL_DEVICE void store(typename Number::Stored* to, i64 count) const {
    using Pairs = QuantizedPairs<typename Number::Stored>;
    if (count >= kQuantizedSpan && Pairs::is_aligned(to)) {
      AL_UNROLL for (int row = 0; row < kQuantizedRows; ++row)
        *reinterpret_cast<typename Pairs::Pair*>(to + row * kQuantizedRow) = {Number::narrow(values[2 * row]),
                                                                              Number::narrow(values[2 * row + 1])};
    } else {
      AL_UNROLL for (int i = 0; i < 2 * kQuantizedRows; ++i) {
        const int at = i / 2 * kQuantizedRow + i % 2;
        if (at < count) to[at] = Number::narrow(values[i]);
      }
    }
  }
  AL_DEVICE void multiply(float factor) {
    AL_UNROLL for (int i = 0; i < 2 * kQuantizedRows; ++i) values[i] *= factor;
  }
  // The largest absolute value, or NaN if there is one.
  AL_DEVICE float largest() const {
    float found = 0;
    AL_UNROLL for (int i = 0; i < 2 * kQuantizedRows; ++i) found = larger(found, fabsf(values[i]));
    return found;
  }
  AL_DEVICE static float larger(float a, float b) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
    float result;
    asm("max.NaN.f32 %0, %1, %2;" : "=f"(result) : "f"(a), "f"(b));
    return result;
#else
    return a > b || a != a ? a : b;
#endif
  }

  AL_DEVICE static QuantizedValues nan() {
    QuantizedValues made;
    AL_UNROLL for (int i = 0; i < 2 * kQuantizedRows; ++i) made.values[i] = __builtin_bit_cast(float, kNan << 16);
    return made;
  }

  template <class Code>
  AL_DEVICE QuantizedPack pack() const {
    const unsigned scale = scale_for<Code>(largest());
    const bool has_codes = scale - 1 < kNan - 1;  // false: the scale is 0 or NaN
    const float to_codes = reciprocal(has_codes ? __builtin_bit_cast(float, scale << 16) : 1.0f);
    QuantizedPack made;
    AL_UNROLL for (int i = 0; i < 4; ++i) {
      const float* const four = values + 4 * i;
      const unsigned low = Code::encode(four[0] * to_codes, four[1] * to_codes);
      const unsigned high = i < 3 ? Code::encode(four[2] * to_codes, four[3] * to_codes) : scale;
#ifdef __CUDACC__
      made.words[i] = __byte_perm(low, high, 0x5410);
#else
      made.words[i] = (low & 0xFFFFu) | high << 16;
#endif
    }
    return made;
  }
  template <class Code>
  AL_DEVICE void set(const QuantizedPack& pack) {
    const Code code(scale_of(pack));
    AL_UNROLL for (int row = 0; row < kQuantizedRows; ++row)
      code.set(values + 2 * row, pack.words[row / 2], row % 2 * 2u);
  }
  template <class Code>
  AL_DEVICE void add(const QuantizedPack& pack) {
    const Code code(scale_of(pack));
    AL_UNROLL for (int row = 0; row < kQuantizedRows; ++row)
      code.add(values + 2 * row, pack.words[row / 2], row % 2 * 2u);
  }

 private:
  static constexpr unsigned kNan = 0x7FC0u;
  AL_DEVICE static float scale_of(const QuantizedPack& pack) {
    return __builtin_bit_cast(float, pack.words[3] & 0xFFFF0000u);
  }
  // A bfloat16, rounded up so that no code exceeds the largest. A pack with a NaN or an infinity
  // has NaN. One whose values are all below 2^-117 becomes zeros, so that no scale is subnormal:
  // reciprocal() would make an infinity of it.
  template <class Code>
  AL_DEVICE static unsigned scale_for(float largest) {
    const unsigned scale = (__builtin_bit_cast(unsigned, largest * (1.0f / Code::kLargest)) + 0xFFFFu) >> 16;
    return !(largest - largest == 0) ? kNan : largest < 0x1p-117f ? 0 : scale;
  }
  // 1 / scale, rounded to nearest. Scales are 2^-126 to 2^122, so that neither they nor the results
  // are subnormal. The compiler's division would branch to serve all numbers.
  AL_DEVICE static float reciprocal(float scale) {
#ifdef __CUDACC__
    float near;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(near) : "f"(scale));
    return __fmaf_rn(near, __fmaf_rn(-scale, near, 1.0f), near);
#else
    return 1.0f / scale;
#endif
  }
};

}  // namespace altorch::kernels
