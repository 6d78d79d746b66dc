// SPDX-License-Identifier: BSD-3-Clause
// Memory that ranks share, exactly as large as it should be, in which another process has written.
#pragma once

#include <cstdlib>
#include <cstring>
#include <memory>

#include "fuzz/input.h"

namespace altorch::fuzz {

inline std::shared_ptr<std::byte> hostile_memory(std::size_t bytes, std::uint8_t fill) {
  void* memory = nullptr;
  if (posix_memalign(&memory, 4096, bytes) != 0) throw std::bad_alloc();
  std::memset(memory, fill, bytes);
  return {static_cast<std::byte*>(memory), [](std::byte* each) { std::free(each); }};
}

// A word of it becomes what the input says.
inline void poke(std::byte* memory, std::size_t bytes, Input& input) {
  const std::size_t place = input.number<std::uint32_t>() % (bytes / sizeof(std::uint64_t));
  const auto value = input.number<std::uint64_t>();
  std::memcpy(memory + place * sizeof value, &value, sizeof value);
}

}  // namespace altorch::fuzz
