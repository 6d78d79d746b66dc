// SPDX-License-Identifier: BSD-3-Clause
// Keeps the results of aborted calls from looking valid. Behind each call stands a kernel. If the
// call is aborted by then, the kernel overwrites its result with poison_of(). All this happens in
// the stream's order: what comes later in the stream, or after a wait for the stream, sees the
// mark.
//
// An abort must set a flag before it lets a stream go on. The routes through the host have an abort
// flag beside their other flags. (Small results that go through the host need no kernel:
// handover.h.) NCCL has no such flag, so PoisonGuard has one. It lies in pinned memory, where a
// plain store sets it: the thread that aborts a hanging call must not call CUDA. CUDA may block
// every caller as long as one of them copies to or from pageable memory behind that very call.
// Measured on an H200: 2.7 us on the device behind a kernel (1.8 us in a graph), 3.4 us of the
// host. A flag in device memory would take 1.1 us less.
#pragma once

#include <memory>
#include <span>

#include "base/operation.h"
#include "device/device.h"

namespace altorch {

// Where this rank's result lies; empty where it has none.
std::span<std::byte> result_of(const Operation& operation, int rank, int size);

// Enqueues the kernel on `stream`. It overwrites the result if `aborted`, an abort flag as in
// PoisonJob, is set.
void poison_if(const std::uint32_t* aborted, const Operation& operation, int rank, int size, Device& device,
               Stream stream);

// Thread rules: guard() by one thread at a time, raise() by any.
class PoisonGuard {
 public:
  // Throws Error(kUnsupported) if there can be no kernels.
  explicit PoisonGuard(std::unique_ptr<Device> device);

  // Enqueues the kernel on `stream`, with this guard's flag.
  void guard(const Operation& operation, int rank, int size, Stream stream);
  // Sets the flag: from now on every kernel that runs overwrites its result. To be called before
  // the calls that block the streams are aborted.
  void raise();

 private:
  const std::unique_ptr<Device> device_;
  const PinnedMemory aborted_;
};

}  // namespace altorch
