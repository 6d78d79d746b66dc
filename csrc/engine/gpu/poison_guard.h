// SPDX-License-Identifier: BSD-3-Clause
// Keeps results of calls that were given up from looking healthy: behind each call stands a kernel that
// overwrites its result (poison_of()) if it has been given up by then. All in the stream's order, so that
// whatever comes later in the stream, or after it was waited for, sees the mark.
//
// Whatever lets a stream go on has to say so first. The routes through the host have a word for that beside
// their flags (and what goes by the host and is small needs no kernel: handover.h); for NCCL, which knows no
// such word, PoisonGuard has one. It lies in pinned memory, where a store raises it: whoever has to end a call
// that hangs must not call CUDA, which may hold every caller up as long as one copies to or from pageable memory
// behind that very call. Measured on an H200: 2.7 us on the device behind a kernel (1.8 us in a graph), 3.4 us
// of the host; a word on the device would take 1.1 us less.
#pragma once

#include <memory>
#include <span>

#include "device/device.h"
#include "engine/operation.h"

namespace altorch {

// Where this rank's result lies; empty where it has none.
std::span<std::byte> result_of(const Operation& operation, int rank, int size);

// Behind what `stream` holds. `given_up`: as in PoisonJob.
void poison_if(const std::uint32_t* given_up, const Operation& operation, int rank, int size, Device& device,
               Stream stream);

// Thread rules: guard() by one thread at a time, raise() by any.
class PoisonGuard {
 public:
  // Throws Error(kUnsupported) where no kernel can be had.
  explicit PoisonGuard(std::unique_ptr<Device> device);

  // Behind what `stream` holds.
  void guard(const Operation& operation, int rank, int size, Stream stream);
  // From now on every guard that is reached overwrites. Before what holds the streams up is ended.
  void raise();

 private:
  const std::unique_ptr<Device> device_;
  const PinnedMemory given_up_;
};

}  // namespace altorch
