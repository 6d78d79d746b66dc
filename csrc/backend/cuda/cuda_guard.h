// SPDX-License-Identifier: BSD-3-Clause
// torch's access to the streams and events of CUDA devices, whichever library implements it.
#pragma once

#include <c10/core/Stream.h>
#include <c10/core/impl/VirtualGuardImpl.h>

namespace altorch::backend {

inline c10::impl::VirtualGuardImpl cuda_guard() { return c10::impl::VirtualGuardImpl(c10::DeviceType::CUDA); }

// Whether torch keeps the stream for the life of the process. Any other may be destroyed as soon as
// a call has returned: torch names it by its address, which is even (c10/cuda/CUDAStream.cpp).
inline bool is_of_torch(const c10::Stream& stream) { return stream.id() == 0 || (stream.id() & 1) != 0; }

}  // namespace altorch::backend
