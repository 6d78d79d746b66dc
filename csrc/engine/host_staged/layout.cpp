#include "engine/host_staged/layout.h"

#include "common/env.h"

namespace altorch {

std::size_t pinned_bytes() { return static_cast<std::size_t>(numeric_setting("ALTORCH_PINNED_BYTES")); }

BoardLayout board_layout(int ranks) {
  return BoardLayout::fitting(ranks, static_cast<std::size_t>(ranks) * pinned_bytes());
}

bool goes_in_pairs(const Operation& operation, int ranks) {
  const auto bytes = static_cast<std::size_t>(operation.count) * size_of(operation.dtype);
  return operation.kind == OpKind::kAllToAll && bytes > 0 && bytes <= board_layout(ranks).pair_bytes();
}

}  // namespace altorch
