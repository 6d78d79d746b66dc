// What ways to memory on GPUs have in common while they are opened: the ranks tell each other of their GPUs, and go on
// together or not at all.
#pragma once

#include <string>
#include <vector>

#include "engine/window/card.h"
#include "engine/window/device_window.h"
#include "engine/window/row.h"

namespace altorch {

// Why kernels and streams that wait cannot be had there, as a clause; empty: they can.
std::string device_obstacle(const GpuSource& gpus, int device);

class DeviceOpening {
 protected:
  explicit DeviceOpening(const WindowOpening& opening)
      : opening_(opening), gpu_(*opening.gpu), rank_(opening.group.rank()), size_(opening.group.size()) {}

  // Throws Error. False: why_not says why there can be none, alike on all ranks.
  bool meet_others(const std::string& obstacle, const MappedPart& shareable, std::string& why_not);
  // `act` on all ranks; what it throws on one ends it on all, and stands in why_not.
  bool attempt(const std::string& key, const std::function<void()>& act, std::string& why_not) const;
  // Of any such window.
  void prepare(DeviceWindow::Memory& memory) const;
  PinnedMemory share(Device& device, const std::string& key, std::size_t bytes) const;

  const WindowOpening& opening_;
  const WindowGpu& gpu_;
  const int rank_, size_;
  std::vector<DeviceCard> cards_;
  World world_;
};

}  // namespace altorch
