// SPDX-License-Identifier: BSD-3-Clause
// Sizes in bytes, as rules and their defaults give them.
#pragma once

#include <cstdint>
#include <limits>

namespace altorch {

inline constexpr std::int64_t kKiB = 1024, kMiB = 1024 * kKiB;
inline constexpr std::int64_t kUnlimited = std::numeric_limits<std::int64_t>::max();

}  // namespace altorch
