// Memory of the ranks' GPUs that all of them map, and pinned memory that they share, for a route that is made of both.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "device/device.h"
#include "engine/route/row.h"

namespace altorch {

struct PeerMemory {
  PinnedMemory pinned;           // one for all
  std::vector<DeviceMemory> of;  // by rank
};

// Collective: `bytes` of each rank's GPU and `pinned_bytes`, all zero at first, and the route that `make` makes of them; or why
// some rank could not, alike on all. `key`: of the group's store, new. Throws Error when a rank does not come.
Opened open_with_peer_memory(GpuGroup& group, Device& device, const std::string& key, std::size_t bytes,
                             std::size_t pinned_bytes,
                             const std::function<std::unique_ptr<GpuRoute>(PeerMemory)>& make);

}  // namespace altorch
