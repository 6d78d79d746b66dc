// SPDX-License-Identifier: BSD-3-Clause
// The protocols of the route `host_staged`.
#pragma once

#include <span>

#include "base/protocol.h"
#include "gpu/host_staged/board.h"

namespace altorch {

enum class StagedProtocolId : std::uint8_t {
  kLl,        // one kernel: every four bytes with a number
  kPieces,    // copied to pinned memory piece by piece, with flags
  kPairs,     // each pair of ranks by LL or messages, by the size of its blocks
  kMessages,  // piece by piece between two ranks
};

// What the choice depends on.
struct StagedMemory {
  const BoardLayout& layout;
  bool co_resident;  // World::co_resident()
};

using StagedProtocol = Protocol<Operation, StagedMemory, StagedProtocolId>;
std::span<const StagedProtocol> staged_protocols();

}  // namespace altorch
