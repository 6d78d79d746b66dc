// SPDX-License-Identifier: BSD-3-Clause
#include "base/operation.h"

#include <numeric>

namespace altorch {

std::int64_t payload_bytes(const Operation& operation, int size) {
  const auto element = static_cast<std::int64_t>(size_of(operation.dtype));
  if (operation.uneven()) {
    const auto& counts = operation.output_counts.empty() ? operation.input_counts : operation.output_counts;
    return element * std::accumulate(counts.begin(), counts.end(), std::int64_t{0});
  }
  return element * operation.count * (has_blocks(operation.kind) ? size : 1);
}

}  // namespace altorch
