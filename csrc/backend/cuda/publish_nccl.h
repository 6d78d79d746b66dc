// SPDX-License-Identifier: BSD-3-Clause
// Tells torch of a group's NCCL communicator, so that torch's symmetric memory can use it. Torch
// versions that do not ask are not told.
#pragma once

#include <c10/core/Device.h>

#include <string>

#if __has_include(<torch/csrc/distributed/c10d/NCCLCommRegistrationHook.hpp>)
#include <torch/csrc/distributed/c10d/NCCLCommRegistrationHook.hpp>
#endif

namespace altorch::backend {

inline void publish_nccl([[maybe_unused]] const std::string& group, [[maybe_unused]] int device,
                         [[maybe_unused]] void* communicator, [[maybe_unused]] bool exists) {
#if __has_include(<torch/csrc/distributed/c10d/NCCLCommRegistrationHook.hpp>)
  const c10::Device where(c10::DeviceType::CUDA, static_cast<c10::DeviceIndex>(device));
  if (exists) {
    c10d::publishNCCLComm(group, communicator, where);
  } else {
    c10d::retireNCCLComm(group, communicator, where);
  }
#endif
}

}  // namespace altorch::backend
