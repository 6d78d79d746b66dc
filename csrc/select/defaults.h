// SPDX-License-Identifier: BSD-3-Clause
// The algorithms of calls on host memory that no rule chooses.
#pragma once

#include <cstdint>

#include "base/operation.h"
#include "select/route.h"

namespace altorch {

// A function of what all ranks know alike. `bytes`: payload_bytes().
Route default_route(const Operation& operation, int size, std::int64_t bytes);

}  // namespace altorch
