// SPDX-License-Identifier: BSD-3-Clause
// Sizes as people read them.
#pragma once

#include <cstdint>
#include <string>

namespace altorch {

// Rounded down to whole MiB, KiB or B.
inline std::string size_text(std::int64_t bytes) {
  if (bytes >= 1 << 20) return std::to_string(bytes >> 20) + " MiB";
  if (bytes >= 1 << 10) return std::to_string(bytes >> 10) + " KiB";
  return std::to_string(bytes) + " B";
}

}  // namespace altorch
