// SPDX-License-Identifier: BSD-3-Clause
// The algorithms of calls on host memory that no rule chooses.
#pragma once

#include <cstdint>
#include <string>

#include "base/operation.h"
#include "select/route.h"

namespace altorch {

// A function of what all ranks know alike. `bytes`: payload_bytes().
Route default_route(const Operation& operation, int size, std::int64_t bytes);

// For which calls a row names the algorithm, as a clause for people: why default_route() gives
// another one.
std::string default_for(const Algorithm& algorithm);

}  // namespace altorch
