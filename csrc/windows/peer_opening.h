// SPDX-License-Identifier: BSD-3-Clause
// Opens a window of ranks whose GPUs map each other's memory: all of them pass on what they have
// registered, and where the others signal them.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "platform/shareable.h"
#include "windows/device_opening.h"

namespace altorch {

// Why memory of that GPU cannot be mapped by others, or kernels that look at it cannot be had, as a
// clause; empty: it can.
std::string mapping_unsupported_reason(const GpuSource& gpus, int device);

class PeerOpening : protected DeviceOpening {
 public:
  explicit PeerOpening(const WindowOpening& opening) : DeviceOpening(opening) {}
  virtual ~PeerOpening() = default;

  // As WindowRow::open.
  std::unique_ptr<RemoteMemory> open(std::string& unsupported_reason);

 protected:
  // Why this rank cannot take part, as a clause; empty: it can.
  virtual std::string own_unsupported_reason() const;
  // Of all ranks, once they know of each other; the same on each. Empty: nothing.
  virtual std::string unsupported_among() const { return ""; }
  // By all ranks at one time. Throws Error.
  virtual std::unique_ptr<RemoteMemory> make(DeviceWindow::Memory memory);

 private:
  void map_all(DeviceWindow::Memory& memory, const Device::Exported& signals);
  // Of each rank, what `part` says of its card: how much it gives, and where that begins which is
  // wanted. Nothing stays null.
  using Part = std::pair<std::size_t, std::size_t> (*)(const DeviceHandle& card, int ranks);
  std::vector<DeviceMemory> exchange(const std::string& key, Device& device, const Descriptor& descriptor,
                                     const DeviceMemory& own, Part part);

  std::optional<Shareable> shareable_;
};

}  // namespace altorch
