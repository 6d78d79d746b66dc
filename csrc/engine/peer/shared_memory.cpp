#include "engine/peer/shared_memory.h"

#include <utility>

#include "common/meeting.h"
#include "transports/shm/shared_memory.h"

namespace altorch {

// In steps, after each of which all ranks know whether to go on: nobody waits for what another one lacks.
Opened open_with_peer_memory(GpuGroup& group, Device& device, const std::string& key, std::size_t bytes,
                             std::size_t pinned_bytes,
                             const std::function<std::unique_ptr<GpuRoute>(PeerMemory)>& make) {
  const int rank = group.communicator.rank(), size = group.communicator.size();
  std::string obstacle;
  const auto attempt = [&](const auto& act) {
    if (!obstacle.empty()) return;
    try {
      act();
    } catch (const Error& error) {
      obstacle = error.what();
    }
  };
  const auto verdict = [&](const std::string& step) {
    return meet_able(group.store, key + "/" + step, rank, size, group.timeout, "to share memory of its GPU",
                     obstacle);
  };
  Device::Exported exported;
  PeerMemory memory;
  attempt([&] { exported = device.export_memory(bytes); });
  if (auto why = verdict("exported")) return {nullptr, *why};
  attempt([&] {
    memory.pinned = device.pin(
        share_memory(group.store, key + "/pinned", rank, size, pinned_bytes, group.timeout), pinned_bytes);
  });
  if (auto why = verdict("noted")) return {nullptr, *why};
  attempt([&] {
    const auto descriptors =
        exchange_descriptors(group.store, key + "/memory", rank, size, exported.descriptor, group.timeout);
    for (int other = 0; other < size; ++other) {
      const Descriptor& descriptor = descriptors[static_cast<std::size_t>(other)];
      memory.of.push_back(other == rank ? exported.memory : device.import_memory(descriptor, bytes));
    }
  });
  std::unique_ptr<GpuRoute> made;
  attempt([&] { made = make(std::move(memory)); });
  if (auto why = verdict("mapped")) return {nullptr, *why};
  return {std::move(made), ""};
}

}  // namespace altorch
