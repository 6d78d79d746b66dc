// SPDX-License-Identifier: BSD-3-Clause
// Settings that have to be alike on all ranks of a group: each rank brings its own when a group is
// made.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "base/error.h"
#include "base/fields.h"

namespace altorch {

// One field "name=value" for each setting of base/env.cpp that must agree.
Fields settings_to_agree_on();

// Why the ranks cannot work together: the first field in which they differ, with its name, both
// values and the ranks; the same on every rank. `names`: what the ranks are called.
std::optional<Error> disagreement(const std::vector<Fields>& ranks, std::span<const int> names);

}  // namespace altorch
