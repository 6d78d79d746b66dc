// SPDX-License-Identifier: BSD-3-Clause
// How elements are stored and computed on a GPU, and the operators on them: the semantics of
// reduction/reduce.h once more, in the part of C++ that NVRTC knows without any header. The host
// compiles it too, where tests compare both.

#ifdef __CUDACC__
#define AL_DEVICE __device__ inline
#else
#define AL_DEVICE inline
#endif

// Before a loop whose arrays have to stay in registers.
#ifdef __CUDACC__
#define AL_UNROLL _Pragma("unroll")
#else
#define AL_UNROLL
#endif

// A kernel may be put on the multiprocessors while the one before it in the stream still runs, and
// waits there until that has ended: what a launch takes is hidden so. A kernel says from when on
// the next one may come: not while it waits for another rank, for what is parked on a
// multiprocessor keeps others from it.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
#define AL_WAIT_FOR_PRIMARY() asm volatile("griddepcontrol.wait;" ::: "memory")
#define AL_LAUNCH_DEPENDENTS() asm volatile("griddepcontrol.launch_dependents;" ::: "memory")
#else
#define AL_WAIT_FOR_PRIMARY()
#define AL_LAUNCH_DEPENDENTS()
#endif

#ifndef __CUDACC__
namespace altorch::kernels {
#include "base/float8.inc"
}
#endif

namespace altorch::kernels {

// Computed in the type that it is stored in.
template <class T>
struct Plain {
  using Stored = T;
  using Computed = T;
  AL_DEVICE static T widen(T value) { return value; }
  AL_DEVICE static T narrow(T value) { return value; }
  AL_DEVICE static T scale(T value, double factor) { return value * static_cast<T>(factor); }
  AL_DEVICE static T mean(T sum, int number) { return sum / static_cast<T>(number); }
};

// Computed as unsigned numbers at least as wide as int, so that they wrap; compared as what they
// are.
template <class T, class Wrapping>
struct Integer {
  using Stored = T;
  using Computed = T;
  AL_DEVICE static T widen(T value) { return value; }
  AL_DEVICE static T narrow(T value) { return value; }
  AL_DEVICE static T mean(T sum, int number) { return static_cast<T>(sum / static_cast<T>(number)); }
  AL_DEVICE static T add(T a, T b) {
    return static_cast<T>(static_cast<Wrapping>(a) + static_cast<Wrapping>(b));
  }
  AL_DEVICE static T multiply(T a, T b) {
    return static_cast<T>(static_cast<Wrapping>(a) * static_cast<Wrapping>(b));
  }
};

// Any byte but 0 is true, and results are 0 or 1.
struct Bool {
  using Stored = unsigned char;
  using Computed = unsigned char;
  AL_DEVICE static unsigned char widen(unsigned char value) { return value != 0; }
  AL_DEVICE static unsigned char narrow(unsigned char value) { return value; }
};

struct WideHalf {
  using Stored = unsigned short;
  using Computed = float;
  AL_DEVICE static float scale(float value, double factor) { return value * static_cast<float>(factor); }
  AL_DEVICE static float mean(float sum, int number) { return sum / static_cast<float>(number); }
};

struct BFloat16 : WideHalf {
  AL_DEVICE static float widen(unsigned short half) {
    return __builtin_bit_cast(float, static_cast<unsigned>(half) << 16);
  }
  // Two, in less time than one after the other.
  AL_DEVICE static void widen_pair(unsigned pair, float* values) {
    values[0] = __builtin_bit_cast(float, pair << 16);
    values[1] = __builtin_bit_cast(float, pair & 0xFFFF0000u);
  }
  AL_DEVICE static unsigned short narrow(float value) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
    unsigned short half;  // the same, but for which NaN it is
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(half) : "f"(value));
    return half;
#endif
    const unsigned bits = __builtin_bit_cast(unsigned, value);
    if ((bits & 0x7FFFFFFFu) > 0x7F800000u) return 0x7FC0u;
    return static_cast<unsigned short>((bits + 0x7FFFu + ((bits >> 16) & 1u)) >> 16);
  }
};

struct Float16 : WideHalf {
#ifdef __CUDACC__
  AL_DEVICE static float widen(unsigned short half) {
    float value;
    asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(half));
    return value;
  }
  AL_DEVICE static unsigned short narrow(float value) {
    unsigned short half;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(half) : "f"(value));
    return half;
  }
#else
#if defined(__aarch64__) && !defined(__clang__) && __GNUC__ < 13
  using Half = __fp16;  // what GCC calls it there, in C++
#else
  using Half = _Float16;
#endif
  static float widen(unsigned short half) { return static_cast<float>(__builtin_bit_cast(Half, half)); }
  static unsigned short narrow(float value) {
    return __builtin_bit_cast(unsigned short, static_cast<Half>(value));
  }
#endif
};

// Compared as it is. Its sums are exact (exact.cuh).
template <class Format>
struct Float8 {
  using Stored = unsigned char;
  using Computed = float;
  AL_DEVICE static float widen(unsigned char byte) { return float8::widen<Format>(byte); }
  AL_DEVICE static unsigned char narrow(float value) { return float8::narrow<Format>(value); }
};
using Float8E4M3FN = Float8<float8::E4M3FN>;
using Float8E5M2 = Float8<float8::E5M2>;

template <class T>
struct ComplexValue {
  T real, imaginary;
};
template <class T>
struct Complex {
  using Stored = ComplexValue<T>;
  using Computed = ComplexValue<T>;
  AL_DEVICE static Computed widen(Stored value) { return value; }
  AL_DEVICE static Stored narrow(Computed value) { return value; }
  AL_DEVICE static Computed scale(Computed value, double factor) {
    return {value.real * static_cast<T>(factor), value.imaginary * static_cast<T>(factor)};
  }
  AL_DEVICE static Computed mean(Computed sum, int number) {
    return {sum.real / static_cast<T>(number), sum.imaginary / static_cast<T>(number)};
  }
  AL_DEVICE static Computed add(Computed a, Computed b) {
    return {a.real + b.real, a.imaginary + b.imaginary};
  }
  AL_DEVICE static Computed multiply(Computed a, Computed b) {
    return {a.real * b.real - a.imaginary * b.imaginary, a.real * b.imaginary + a.imaginary * b.real};
  }
};

// Number types with their own add() and multiply().
template <class Number>
concept OwnArithmetic = requires(typename Number::Computed value) {
  Number::add(value, value);
};

struct Sum {
  template <class Number, class T>
  AL_DEVICE static T apply(T a, T b) {
    if constexpr (OwnArithmetic<Number>) {
      return Number::add(a, b);
    } else {
      return a + b;
    }
  }
};
struct Product {
  template <class Number, class T>
  AL_DEVICE static T apply(T a, T b) {
    if constexpr (OwnArithmetic<Number>) {
      return Number::multiply(a, b);
    } else {
      return a * b;
    }
  }
};
// A NaN on either side is the result, and `a` where both are, or where both are zero.
struct Min {
  template <class Number, class T>
  AL_DEVICE static T apply(T a, T b) {
    return (a <= b || a != a) ? a : b;
  }
};
struct Max {
  template <class Number, class T>
  AL_DEVICE static T apply(T a, T b) {
    return (a >= b || a != a) ? a : b;
  }
};
struct And {
  template <class Number, class T>
  AL_DEVICE static T apply(T a, T b) {
    return static_cast<T>(a & b);
  }
};
struct Or {
  template <class Number, class T>
  AL_DEVICE static T apply(T a, T b) {
    return static_cast<T>(a | b);
  }
};
struct Xor {
  template <class Number, class T>
  AL_DEVICE static T apply(T a, T b) {
    return static_cast<T>(a ^ b);
  }
};

}  // namespace altorch::kernels
