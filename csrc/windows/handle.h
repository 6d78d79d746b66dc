// SPDX-License-Identifier: BSD-3-Clause
// What a rank tells the others of the memory that it gives a window.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "base/fields.h"
#include "platform/single_copy.h"
#include "select/world.h"
#include "transports/window.h"

namespace altorch {

// Of any memory: how much there is, of which type. Throws Error(kInternal) on anything else than
// what fields() gave.
Fields registered_fields(const Registered& registered);
Registered registered_from(const std::string& bytes, const std::string& dtype);

// What others can map, and where the window's memory begins there; 0 bytes: they can map nothing.
struct MappedPart {
  std::size_t bytes = 0, offset = 0;
  bool holds(std::size_t wanted) const { return offset <= bytes && wanted <= bytes - offset; }
};

// Of host memory.
struct HostHandle {
  std::string node, cores;
  shm::Process process;
  std::uint64_t address = 0;
  MappedPart shareable;
  std::string unsupported_reason;

  std::string text() const;
  static HostHandle from(const std::string& text);  // throws Error(kInternal)
};

// Of memory on a GPU.
struct DeviceHandle {
  GpuPeerInfo gpu;
  std::string unsupported_reason;
  MappedPart shareable;

  std::string text() const;
  static DeviceHandle from(const std::string& text);  // throws Error(kInternal)
};

}  // namespace altorch
