// SPDX-License-Identifier: BSD-3-Clause
// The protocols of the route `peer`: device/kernels/ has their kernels.
#pragma once

#include <span>

#include "base/protocol.h"
#include "gpu/peer/layout.h"

namespace altorch {

enum class PeerProtocolId : std::uint8_t {
  kNorm,          // an all_reduce fused with a norm
  kLl,            // every four bytes with a number
  kLl128,         // every 128 bytes with a number
  kLl128TwoShot,  // the same; each rank reduces a share, and passes it on
  kOneShot,       // chunks, with a flag behind each; every rank reduces all it needs
  kTwoShot,       // rounds with a flag; each rank reduces a share, and passes it on
  kExchange,      // chunks, with a flag behind each; nothing is reduced
  kPairs,         // each pair of ranks by LL, LL128 or exchange, by the size of its blocks
  kMessages,      // send and receive
};

using PeerProtocol = Protocol<Operation, PeerLayout, PeerProtocolId>;
std::span<const PeerProtocol> peer_protocols();

}  // namespace altorch
