// SPDX-License-Identifier: BSD-3-Clause
// Channels between ranks that live in one process: for proofs and tests of all that runs on a
// Channel.
//
// Ranks may be threads or be polled in turn by one thread. Nothing depends on timing: what is
// delayed is delayed by a number of polls that comes from a seed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "transports/channel.h"

namespace altorch {

struct LoopbackOptions {
  // Messages up to this size are copied when sent; a larger one is read when its receive is there,
  // and until then its send is not done. 0 finds buffers that are changed too early and waits in a
  // circle.
  std::size_t eager_bytes = 16384;
  // Each message can be received only after up to this many calls of test(), by any rank. Messages
  // overtake each other then, but never within one (source, tag).
  std::uint64_t longest_delay = 0;
  std::uint64_t seed = 0;
  // What is cancelled stays where it is, as messages of MPI's may: its buffer is written to or read
  // yet.
  bool keeps_cancelled = false;
};

// One channel per rank. They own the world together; it ends with the last of them.
std::vector<std::unique_ptr<Channel>> make_loopback_channels(int size, const LoopbackOptions& options = {});

}  // namespace altorch
