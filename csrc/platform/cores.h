// SPDX-License-Identifier: BSD-3-Clause
// Which cores processes may run on. A rank that a launcher has bound to a core sees only that one,
// so what matters is how many the ranks of a node have together.
#pragma once

#include <optional>
#include <span>
#include <string>

namespace altorch {

// Those that this process may use, as Linux writes lists of cores ("0-3,8"). Empty where there are
// more than the system's mask has places for (1,024).
std::string usable_cores();
// How many there are in all of such lists together; nothing where one is unknown, or is no list.
std::optional<int> count_cores(std::span<const std::string> lists);

}  // namespace altorch
