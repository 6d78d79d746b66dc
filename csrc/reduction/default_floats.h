// SPDX-License-Identifier: BSD-3-Clause
// Runs kernels with IEEE 754's default rounding and subnormals. Different threads on different
// ranks run the kernels of one call, so the settings of a thread (torch.set_flush_denormal,
// fesetround) would make the ranks' results differ.
#pragma once

#include <cstdint>

#if defined(__SSE2__)
#include <immintrin.h>
#endif

namespace altorch::reduction {

// While an object of it exists, this thread computes with subnormals and rounds to nearest even.
// Thread rules: one thread.
class DefaultFloats {
 public:
  DefaultFloats() : before_(get()) {
    if (before_ & kOthers) set(before_ & ~kOthers);
  }
  ~DefaultFloats() {
    if (before_ & kOthers) set(before_);
  }
  DefaultFloats(const DefaultFloats&) = delete;

 private:
#if defined(__SSE2__)
  using Register = unsigned;
  static constexpr Register kOthers =
      0x8000 | 0x6000 | 0x0040;  // flush to zero, rounding, subnormals are zero
  static Register get() { return _mm_getcsr(); }
  static void set(Register value) { _mm_setcsr(value); }
#elif defined(__aarch64__)
  using Register = std::uint64_t;
  static constexpr Register kOthers = 7 << 22 | 1 << 19;  // rounding, FZ, FZ16
  static Register get() {
    Register value;
    asm volatile("mrs %0, fpcr" : "=r"(value));
    return value;
  }
  static void set(Register value) { asm volatile("msr fpcr, %0" : : "r"(value)); }
#else
  using Register = unsigned;
  static constexpr Register kOthers = 0;
  static Register get() { return 0; }
  static void set(Register) {}
#endif
  const Register before_;
};

}  // namespace altorch::reduction
