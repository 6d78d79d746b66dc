// SPDX-License-Identifier: BSD-3-Clause
// How large the tensors of one rank are in a call, whole.
#pragma once

#include <cstdint>
#include <optional>

#include "base/call.h"

namespace altorch {

// In elements; nothing where this rank has no such tensor.
struct Elements {
  std::optional<std::int64_t> input, output;
};

Elements elements_of(const Call& call, int rank, int size);

}  // namespace altorch
