// SPDX-License-Identifier: BSD-3-Clause
// Sums of values that travel in 8 bits, with a float32 scale for every 128 of them
// (docs/quantized.md). Include after reduce.cuh.
//
// A chunk of `size` elements, a multiple of 128, is stored as `size` codes, followed by a scale for
// every 128 of them.
//
// The arithmetic is that of reduction/quantized.inc, so that GPUs and CPUs give the same bits.

#ifndef __CUDACC__
#include <cmath>
#endif

namespace altorch::kernels {

constexpr int kQuantizedBlock = QuantizedChunks::kBlock;
// Threads that quantize a block together.
#ifdef __CUDACC__
constexpr int kQuantizedLanes = 8;
#else
constexpr int kQuantizedLanes = 1;
#endif
constexpr int kQuantizedLength = kQuantizedBlock / kQuantizedLanes;  // values of a thread

// Four values at a time, as the bytes of a word.
struct Int8Code {
  static constexpr float kLargest = 127;
  // To nearest, ties to even: the last bit of such a sum is worth 1, so that its last byte is the
  // integer.
  AL_DEVICE static unsigned rounded(float value) { return __builtin_bit_cast(unsigned, value + 12582912.0f); }
  AL_DEVICE static unsigned encode(const float* values, float to_codes) {
    const unsigned a = rounded(values[0] * to_codes), b = rounded(values[1] * to_codes);
    const unsigned c = rounded(values[2] * to_codes), d = rounded(values[3] * to_codes);
#ifdef __CUDACC__
    return __byte_perm(__byte_perm(a, b, 0x0040), __byte_perm(c, d, 0x0040), 0x5410);
#else
    return (a & 0xFFu) | (b & 0xFFu) << 8 | (c & 0xFFu) << 16 | d << 24;
#endif
  }
  // Without a conversion of integers, of which a GPU does few at a time: 2^23 + 128 + code, minus
  // 2^23 + 128.
  AL_DEVICE static void add(float* sums, unsigned word, float to_values) {
    const unsigned positive = word ^ 0x80808080u;
    AL_UNROLL for (unsigned i = 0; i < 4; ++i) {
#ifdef __CUDACC__
      const unsigned bits = __byte_perm(positive, 0x4B000000u, 0x7440 | i);
#else
      const unsigned bits = 0x4B000000u | ((positive >> 8 * i) & 0xFFu);
#endif
      sums[i] += (__builtin_bit_cast(float, bits) - 8388736.0f) * to_values;
    }
  }
};
struct Float8Code {
  static constexpr float kLargest = 448;
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 890
  AL_DEVICE static unsigned encode(const float* values, float to_codes) {
    unsigned short low, high;
    asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(low) : "f"(values[1] * to_codes), "f"(values[0] * to_codes));
    asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(high) : "f"(values[3] * to_codes), "f"(values[2] * to_codes));
    return low | static_cast<unsigned>(high) << 16;
  }
  AL_DEVICE static void add(float* sums, unsigned word, float to_values) {
    AL_UNROLL for (int i = 0; i < 2; ++i) {
      unsigned both;
      asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(both) : "h"(static_cast<unsigned short>(word >> 16 * i)));
      sums[2 * i] += Float16::widen(static_cast<unsigned short>(both)) * to_values;
      sums[2 * i + 1] += Float16::widen(static_cast<unsigned short>(both >> 16)) * to_values;
    }
  }
#else
  AL_DEVICE static unsigned encode(const float* values, float to_codes) {
    unsigned word = 0;
    AL_UNROLL for (int i = 0; i < 4; ++i)
      word |= static_cast<unsigned>(float8::narrow<float8::E4M3FN>(values[i] * to_codes)) << 8 * i;
    return word;
  }
  AL_DEVICE static void add(float* sums, unsigned word, float to_values) {
    AL_UNROLL for (int i = 0; i < 4; ++i)
      sums[i] += float8::widen<float8::E4M3FN>(static_cast<unsigned char>(word >> 8 * i)) * to_values;
  }
#endif
};

// The codes of a thread's values.
struct alignas(16) QuantizedCodes {
  unsigned words[kQuantizedLength / 4];
};

// A thread's values of a block.
struct QuantizedValues {
  float values[kQuantizedLength];

  // Elements from `from` on; those from `count` on are zeros.
  template <class Number>
  AL_DEVICE void load(const typename Number::Stored* from, i64 count) {
    using Vector = Pack<typename Number::Stored>;
    if (count >= kQuantizedLength && reinterpret_cast<u64>(from) % 16 == 0) {
      AL_UNROLL for (int pack = 0; pack < kQuantizedLength / Vector::kLength; ++pack) {
        const Vector held = reinterpret_cast<const Vector*>(from)[pack];
        AL_UNROLL for (int i = 0; i < Vector::kLength; ++i)
          values[pack * Vector::kLength + i] = Number::widen(held.elements[i]);
      }
    } else {
      AL_UNROLL for (int i = 0; i < kQuantizedLength; ++i) values[i] = i < count ? Number::widen(from[i]) : 0.0f;
    }
  }
  template <class Number>
  AL_DEVICE void store(typename Number::Stored* to, i64 count) const {
    using Vector = Pack<typename Number::Stored>;
    if (count >= kQuantizedLength && reinterpret_cast<u64>(to) % 16 == 0) {
      AL_UNROLL for (int pack = 0; pack < kQuantizedLength / Vector::kLength; ++pack) {
        Vector made;
        AL_UNROLL for (int i = 0; i < Vector::kLength; ++i)
          made.elements[i] = Number::narrow(values[pack * Vector::kLength + i]);
        reinterpret_cast<Vector*>(to)[pack] = made;
      }
    } else {
      AL_UNROLL for (int i = 0; i < kQuantizedLength; ++i)
        if (i < count) to[i] = Number::narrow(values[i]);
    }
  }
  AL_DEVICE void multiply(float factor) {
    if (factor == 1.0f) return;
    AL_UNROLL for (int i = 0; i < kQuantizedLength; ++i) values[i] *= factor;
  }
  // The largest absolute value of the block, or NaN if there is one. All threads of a warp call it.
  AL_DEVICE float largest() const {
    float most = 0;
    AL_UNROLL for (int i = 0; i < kQuantizedLength; ++i) most = larger(most, fabsf(values[i]));
#ifdef __CUDACC__
    AL_UNROLL for (int apart = 1; apart < kQuantizedLanes; apart *= 2)
      most = larger(most, __shfl_xor_sync(0xFFFFFFFFu, most, apart));
#endif
    return most;
  }
  AL_DEVICE static float larger(float a, float b) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
    float most;
    asm("max.NaN.f32 %0, %1, %2;" : "=f"(most) : "f"(a), "f"(b));
    return most;
#else
    return a > b || a != a ? a : b;
#endif
  }
};

// What a block's values are multiplied with, and its codes. A block with a NaN or an infinity has
// NaN for its scale; one whose values are all below 2^-118 becomes zeros.
struct QuantizedScale {
  float to_codes, to_values;
};
template <class Code>
AL_DEVICE QuantizedScale scale_for(float largest) {
  if (!(largest - largest == 0)) return {0.0f, __builtin_bit_cast(float, 0x7FC00000u)};
  if (largest < 0x1p-118f) return {0.0f, 0.0f};
  return {Code::kLargest / largest, largest / Code::kLargest};
}
template <class Code>
AL_DEVICE QuantizedCodes encode(const QuantizedValues& of, float to_codes) {
  QuantizedCodes made;
  AL_UNROLL for (int i = 0; i < kQuantizedLength / 4; ++i) made.words[i] = Code::encode(of.values + 4 * i, to_codes);
  return made;
}
template <class Code>
AL_DEVICE void add_codes(QuantizedValues& sums, const QuantizedCodes& held, float to_values) {
  AL_UNROLL for (int i = 0; i < kQuantizedLength / 4; ++i) Code::add(sums.values + 4 * i, held.words[i], to_values);
}

AL_DEVICE float* scales_of(void* chunk, i64 size) {
  return reinterpret_cast<float*>(static_cast<unsigned char*>(chunk) + size);
}
AL_DEVICE const float* scales_of(const void* chunk, i64 size) {
  return reinterpret_cast<const float*>(static_cast<const unsigned char*>(chunk) + size);
}

// Calls act(first element of the thread, elements from there on, block) for each block of `count`
// elements. Whole warps call it, with no or a negative number of elements behind the end.
template <class Act>
AL_DEVICE void for_each_quantized_block(i64 count, i64 thread, i64 threads, const Act& act) {
  const i64 blocks = (count + kQuantizedBlock - 1) / kQuantizedBlock, groups = threads / kQuantizedLanes;
  const i64 group = thread / kQuantizedLanes, lane = thread % kQuantizedLanes;
  for (i64 first = 0; first < blocks; first += groups) {
    const i64 block = first + group, at = block * kQuantizedBlock + lane * kQuantizedLength;
    act(at, count - at, block);
  }
}

// Quantizes `count` elements into a chunk of `size`, and then zeros.
template <class Number, class Code>
AL_DEVICE void quantize_chunk(const typename Number::Stored* from, i64 count, void* chunk, i64 size, i64 thread,
                              i64 threads) {
  auto* const codes = static_cast<unsigned char*>(chunk);
  for_each_quantized_block(size, thread, threads, [&](i64 at, i64, i64 block) {
    QuantizedValues values;
    values.template load<Number>(from + at, count - at);
    const QuantizedScale scale = scale_for<Code>(values.largest());
    if (block * kQuantizedBlock >= size) return;
    *reinterpret_cast<QuantizedCodes*>(codes + at) = encode<Code>(values, scale.to_codes);
    if (at % kQuantizedBlock == 0) scales_of(chunk, size)[block] = scale.to_values;
  });
}

// What thread `thread` of `threads` does.
template <class Number, class Code>
AL_DEVICE void quantize_chunks(const QuantizedChunks& job, i64 thread, i64 threads) {
  const auto* const input = static_cast<const typename Number::Stored*>(job.input);
  for (int i = 0; i < job.number; ++i) {
    const i64 begin = i * job.size;
    auto* const chunk = static_cast<unsigned char*>(job.chunks) + i * job.stride;
    quantize_chunk<Number, Code>(input + begin, job.count - begin, chunk, job.size, thread, threads);
  }
}
// The sum of all chunks.
template <class Number, class Code>
AL_DEVICE void sum_chunks(const QuantizedChunks& job, i64 thread, i64 threads) {
  auto* const output = static_cast<typename Number::Stored*>(job.output);
  for_each_quantized_block(job.count, thread, threads, [&](i64 at, i64 left, i64 block) {
    if (left <= 0) return;
    QuantizedValues sum = {};
    for (int i = 0; i < job.number; ++i) {
      const auto* const chunk = static_cast<const unsigned char*>(job.chunks) + i * job.stride;
      add_codes<Code>(sum, *reinterpret_cast<const QuantizedCodes*>(chunk + at), scales_of(chunk, job.size)[block]);
    }
    sum.multiply(job.factor);
    sum.template store<Number>(output + at, left);
  });
}
// The values of all chunks, one after the other.
template <class Number, class Code>
AL_DEVICE void dequantize_chunks(const QuantizedChunks& job, i64 thread, i64 threads) {
  for (int i = 0; i < job.number; ++i) {
    QuantizedChunks one = job;
    const i64 left = job.count - i * job.size;
    one.chunks = static_cast<unsigned char*>(job.chunks) + i * job.stride;
    one.output = static_cast<typename Number::Stored*>(job.output) + i * job.size;
    one.count = left < 0 ? 0 : left < job.size ? left : job.size;
    one.number = 1;
    sum_chunks<Number, Code>(one, thread, threads);
  }
}

template <class Number, class Code>
AL_DEVICE void change_chunks(const QuantizedChunks& job, i64 thread, i64 threads) {
  if (job.step == QuantizedChunks::kQuantize) quantize_chunks<Number, Code>(job, thread, threads);
  if (job.step == QuantizedChunks::kSum) sum_chunks<Number, Code>(job, thread, threads);
  if (job.step == QuantizedChunks::kDequantize) dequantize_chunks<Number, Code>(job, thread, threads);
}

#ifdef __CUDACC__
template <class Number, class Code>
AL_DEVICE void run_quantized_chunks(const QuantizedChunks& job) {
  change_chunks<Number, Code>(job, blockIdx.x * static_cast<i64>(blockDim.x) + threadIdx.x,
                              gridDim.x * static_cast<i64>(blockDim.x));
}
#endif

}  // namespace altorch::kernels
