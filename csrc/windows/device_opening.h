// SPDX-License-Identifier: BSD-3-Clause
// What ways to memory on GPUs have in common while they are opened: the ranks tell each other of
// their GPUs, and go on together or not at all.
#pragma once

#include <string>
#include <vector>

#include "windows/device_window.h"
#include "windows/handle.h"
#include "windows/row.h"

namespace altorch {

// Why kernels and streams that wait cannot be had there, as a clause; empty: they can.
std::string device_unsupported_reason(const GpuSource& gpus, int device);

class DeviceOpening {
 protected:
  explicit DeviceOpening(const WindowOpening& opening)
      : opening_(opening), gpu_(*opening.gpu), rank_(opening.group.rank()), size_(opening.group.size()) {}

  // Exchanges what the ranks can do; `own_reason`: why this rank cannot. Throws Error. False:
  // unsupported_reason says why no rank gets a window, the same on all ranks.
  bool exchange_cards(const std::string& own_reason, const MappedPart& shareable,
                      std::string& unsupported_reason);
  // The same for ranks that have to share a node.
  bool exchange_cards_on_node(const std::string& own_reason, const MappedPart& shareable,
                              std::string& unsupported_reason);
  // Runs `act` on all ranks. If it throws on one, all ranks return false, and unsupported_reason
  // has its error.
  bool attempt(const std::string& key, const std::function<void()>& act,
               std::string& unsupported_reason) const;
  // Of any such window.
  void prepare(DeviceWindow::Memory& memory) const;
  // By rank: why atomic operations of kernels do not reach its memory; empty: they do.
  std::vector<std::string> atomics_unsupported_reasons() const;
  PinnedMemory share(Device& device, const std::string& key, std::size_t bytes) const;

  const WindowOpening& opening_;
  const WindowGpu& gpu_;
  const int rank_, size_;
  std::vector<DeviceHandle> cards_;
  World world_;
};

}  // namespace altorch
