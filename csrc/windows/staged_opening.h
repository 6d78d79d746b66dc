// SPDX-License-Identifier: BSD-3-Clause
// Opens windows that reach other ranks through pinned memory: shared by the ranks of a node, or
// each rank's own (RelayOpening), which the hosts relay.
#pragma once

#include <memory>
#include <string>

#include "windows/device_opening.h"

namespace altorch {

class StagedOpening : protected DeviceOpening {
 public:
  explicit StagedOpening(const WindowOpening& opening) : DeviceOpening(opening) {}
  virtual ~StagedOpening() = default;

  // As WindowRow::open.
  std::unique_ptr<RemoteMemory> open(std::string& unsupported_reason);

 protected:
  virtual bool exchange(std::string& unsupported_reason);
  virtual bool is_relayed() const { return false; }
  virtual PinnedMemory pin(Device& device, std::size_t bytes) const { return share(device, "board", bytes); }
  virtual std::unique_ptr<RemoteMemory> make(DeviceWindow::Memory memory) const;
};

class RelayOpening : public StagedOpening {
 public:
  using StagedOpening::StagedOpening;

 protected:
  bool exchange(std::string& unsupported_reason) override;
  bool is_relayed() const override { return true; }
  PinnedMemory pin(Device& device, std::size_t bytes) const override { return device.pin(bytes); }
  std::unique_ptr<RemoteMemory> make(DeviceWindow::Memory memory) const override;
};

}  // namespace altorch
