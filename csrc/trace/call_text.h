// SPDX-License-Identifier: BSD-3-Clause
// A recorded call as text.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "trace/flight_recorder.h"

namespace altorch {

// Of the larger of this rank's tensors; nothing where it has none.
std::optional<std::int64_t> bytes_of(const FlightEntry& entry);
// "all_reduce #7 (float32, 1 MiB)", "recv from rank 2, tag 5 (int64, 8 B)"
std::string text_of(const FlightEntry& entry);

}  // namespace altorch
