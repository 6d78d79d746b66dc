// SPDX-License-Identifier: BSD-3-Clause
// The reason why a rank aborted, in memory that ranks share. The first reason that is written
// stays. The memory is zero at first.
#pragma once

#include <atomic>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string>

namespace altorch {

// Thread rules: any thread of any process that maps it.
struct AbortNote {
  std::uint32_t aborted;  // 1: a thread writes the reason; 2: the reason can be read
  char reason[1020];

  void write(const std::string& why) {
    std::uint32_t expected = 0;
    if (!std::atomic_ref(aborted).compare_exchange_strong(expected, 1)) return;
    std::strncpy(reason, why.c_str(), sizeof reason - 1);
    std::atomic_ref(aborted).store(2, std::memory_order_release);
  }
  std::optional<std::string> read() {
    if (std::atomic_ref(aborted).load(std::memory_order_acquire) != 2) return std::nullopt;
    return std::string(reason, strnlen(reason, sizeof reason));
  }
};

}  // namespace altorch
