// SPDX-License-Identifier: BSD-3-Clause
// How much pinned memory a group takes, and how it is divided.
#pragma once

#include "base/operation.h"
#include "gpu/host_staged/board.h"

namespace altorch {

// Pinned memory of each rank of a group that ALTORCH_PINNED_BYTES allows.
std::size_t pinned_bytes();
// Of the memory that so many ranks of one node share.
BoardLayout board_layout(int ranks);
}  // namespace altorch
