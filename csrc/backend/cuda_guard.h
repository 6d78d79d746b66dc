// torch's access to the streams and events of CUDA devices, whichever library implements it.
#pragma once

#include <c10/core/impl/VirtualGuardImpl.h>

namespace altorch::backend {

inline c10::impl::VirtualGuardImpl cuda_guard() { return c10::impl::VirtualGuardImpl(c10::DeviceType::CUDA); }

}  // namespace altorch::backend
