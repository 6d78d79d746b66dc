// SPDX-License-Identifier: BSD-3-Clause
// Memory of a device as altorch.empty() makes it: the ranks of a window can map it.
#pragma once

#include "device/device.h"
#include "platform/shareable.h"

namespace altorch {

inline DeviceMemory exported(Device& device, std::size_t bytes) {
  auto made = device.export_memory(bytes);
  std::byte* const memory = made.memory.get();
  remember_shareable(memory, bytes, std::move(made.descriptor));
  return {memory, [kept = made.memory](std::byte* released) { forget_shareable(released); }};
}

}  // namespace altorch
