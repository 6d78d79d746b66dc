// SPDX-License-Identifier: BSD-3-Clause
// Blocks that lie side by side, one per rank: given by per-rank counts or, where these are empty,
// an even count.
#pragma once

#include <cstdint>
#include <span>

namespace altorch {

// Elements of block `i`.
inline std::int64_t block_count(std::span<const std::int64_t> counts, std::int64_t even, int i) {
  return counts.empty() ? even : counts[static_cast<std::size_t>(i)];
}
// Where it starts, in elements.
inline std::int64_t block_offset(std::span<const std::int64_t> counts, std::int64_t even, int i) {
  if (counts.empty()) return even * i;
  std::int64_t offset = 0;
  for (int k = 0; k < i; ++k) offset += counts[static_cast<std::size_t>(k)];
  return offset;
}

}  // namespace altorch
