// SPDX-License-Identifier: BSD-3-Clause
// Whether additions were exact: the processor keeps a flag that every rounding raises. It costs
// nothing while additions run, and some nanoseconds to read.
#pragma once

#include <cstdint>

namespace altorch::reduction {

// Of this thread, from clear() on. Compilers do not know that additions raise a flag: `results` is
// where they are stored, so that they come before raised(). A register is as it was before at the
// end. Thread rules: one thread.
class InexactFlag {
 public:
  InexactFlag() : before_(get()) {}
  ~InexactFlag() { set(before_); }
  InexactFlag(const InexactFlag&) = delete;

  void clear() { set(before_ & ~kInexact); }
  bool raised(const void* results) const {
    asm volatile("" : : "r"(results) : "memory");
    return (get() & kInexact) != 0;
  }

 private:
#if defined(__SSE2__)
  using Register = std::uint32_t;
  static constexpr Register kInexact = 0x20;
  static Register get() {
    Register value;
    asm volatile("stmxcsr %0" : "=m"(value) : : "memory");
    return value;
  }
  static void set(Register value) { asm volatile("ldmxcsr %0" : : "m"(value) : "memory"); }
#elif defined(__aarch64__)
  using Register = std::uint64_t;
  static constexpr Register kInexact = 0x10;
  static Register get() {
    Register value;
    asm volatile("mrs %0, fpsr" : "=r"(value) : : "memory");
    return value;
  }
  static void set(Register value) { asm volatile("msr fpsr, %0" : : "r"(value) : "memory"); }
#else  // always raised: each element is looked at
  using Register = std::uint32_t;
  static constexpr Register kInexact = 1;
  static Register get() { return kInexact; }
  static void set(Register) {}
#endif
  const Register before_;
};

}  // namespace altorch::reduction
