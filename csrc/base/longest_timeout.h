// SPDX-License-Identifier: BSD-3-Clause
// Timeouts that a program may give: torch's are any number of milliseconds, and a deadline must fit
// into a clock of nanoseconds.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>

namespace altorch {

inline constexpr std::chrono::milliseconds kLongestTimeout = std::chrono::hours(24 * 365 * 10);  // ten years

// Below 0: the longest, for torch makes such numbers of datetime.timedelta.max.
constexpr std::chrono::milliseconds clamp_timeout(std::chrono::milliseconds timeout) {
  return timeout.count() < 0 ? kLongestTimeout : std::min(timeout, kLongestTimeout);
}
constexpr std::chrono::milliseconds timeout_of_seconds(double seconds) {
  constexpr double kMost = static_cast<double>(kLongestTimeout.count()) / 1000;
  const bool fits = seconds >= 0 && seconds < kMost;
  return fits ? std::chrono::milliseconds(static_cast<std::int64_t>(seconds * 1000)) : kLongestTimeout;
}

}  // namespace altorch
