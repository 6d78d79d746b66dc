// SPDX-License-Identifier: BSD-3-Clause
#include "gpu/host_staged/pinned_bytes.h"

#include "base/env.h"

namespace altorch {

std::size_t pinned_bytes() { return static_cast<std::size_t>(numeric_setting("ALTORCH_PINNED_BYTES")); }

BoardLayout board_layout(int ranks) {
  return BoardLayout::fitting(ranks, static_cast<std::size_t>(ranks) * pinned_bytes());
}

}  // namespace altorch
