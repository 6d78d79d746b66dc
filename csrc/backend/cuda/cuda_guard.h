// SPDX-License-Identifier: BSD-3-Clause
// torch's access to the streams and events of CUDA devices, whichever library implements it.
#pragma once

#include <c10/core/Stream.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include "device/cuda_runtime.h"

namespace altorch::backend {

inline c10::impl::VirtualGuardImpl cuda_guard() { return c10::impl::VirtualGuardImpl(c10::DeviceType::CUDA); }

// Whether torch keeps the stream for the life of the process. Any other may be destroyed as soon as
// a call has returned: torch names it by its address, which is even (c10/cuda/CUDAStream.cpp).
inline bool is_of_torch(const c10::Stream& stream) { return stream.id() == 0 || (stream.id() & 1) != 0; }

// Whether a CUDA graph captures the stream: an event that is recorded now would become part of the
// graph.
inline bool is_captured(const c10::Stream& stream) {
  return CudaRuntime::instance().is_capturing(stream.native_handle());
}

// Whether the thread's current stream or a stream of torch's pools is captured. Waiting for the
// whole device would end that capture with an error, and CUDA has no function that tells. The pools
// hand out their streams in turn, so taking each once leaves them as they were.
inline bool is_any_captured(c10::Device device) {
  constexpr int kPools = 4, kStreamsInPool = 32;  // c10/cuda/CUDAStream.cpp; a pool for each priority
  const auto guard = cuda_guard();
  if (is_captured(guard.getStream(device))) return true;
  bool captured = false;
  for (int pool = 0; pool < kPools; ++pool) {
    for (int i = 0; i < kStreamsInPool; ++i) captured |= is_captured(guard.getNewStream(device, -pool));
  }
  return captured;
}

}  // namespace altorch::backend
