// Arithmetic by IEEE 754's defaults, whatever the thread has set: which thread of which rank adds up is not the program's
// choice, so a setting of its own (torch.set_flush_denormal, fesetround) would make results differ between ranks.
#pragma once

#include <cstdint>

#if defined(__SSE2__)
#include <immintrin.h>
#endif

namespace altorch::reduction {

// Subnormals count, and results are rounded to nearest even, while one lives on this thread.
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
  static constexpr Register kOthers = 7 << 22 | 1 << 19;  // rounding, flush to zero, the same of half types
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
