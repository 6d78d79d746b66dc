// SPDX-License-Identifier: BSD-3-Clause
// A counter in memory by which threads, processes and GPUs tell each other how far they are. It
// only grows, and wraps to 0 after 2^32 steps: "reached" means reached or passed by less than half
// of that.
#pragma once

#include <atomic>
#include <cstdint>

namespace altorch {

// Alone in its cache line. Thread rules: one writer at a time, any number of readers.
struct alignas(64) Flag {
  std::uint32_t count = 0;

  bool reached(std::uint32_t value) const {
    // atomic_ref of a const object is C++26.
    const std::atomic_ref<std::uint32_t> now(const_cast<std::uint32_t&>(count));
    return static_cast<std::int32_t>(now.load(std::memory_order_acquire) - value) >= 0;
  }
  // A thread that sees the flag also sees what was written before. A flag that is higher already
  // stays, because operations that fail may do so out of order.
  void raise(std::uint32_t value) {
    if (!reached(value)) std::atomic_ref<std::uint32_t>(count).store(value, std::memory_order_release);
  }
};

// Something that must not begin before a flag is raised. Without a flag it is open.
struct Gate {
  const Flag* flag = nullptr;
  std::uint32_t value = 0;
  bool open() const { return !flag || flag->reached(value); }
};

}  // namespace altorch
