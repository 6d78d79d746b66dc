// SPDX-License-Identifier: BSD-3-Clause
// Why a rank has given up, in memory that ranks share: the first reason stays. Zero at first.
#pragma once

#include <atomic>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string>

namespace altorch {

// Thread rules: any thread of any process that maps it.
struct AbortNote {
  std::uint32_t aborted;  // 1: somebody writes the reason; 2: it can be read
  char reason[1020];

  void write(const std::string& why) {
    std::uint32_t nobody = 0;
    if (!std::atomic_ref(aborted).compare_exchange_strong(nobody, 1)) return;
    std::strncpy(reason, why.c_str(), sizeof reason - 1);
    std::atomic_ref(aborted).store(2, std::memory_order_release);
  }
  std::optional<std::string> read() {
    if (std::atomic_ref(aborted).load(std::memory_order_acquire) != 2) return std::nullopt;
    return std::string(reason, strnlen(reason, sizeof reason));
  }
};

}  // namespace altorch
