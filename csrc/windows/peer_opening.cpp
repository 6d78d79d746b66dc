// SPDX-License-Identifier: BSD-3-Clause
#include "windows/peer_opening.h"

#include <unistd.h>

#include "rendezvous/shared_memory.h"

namespace altorch {

std::string mapping_unsupported_reason(const GpuSource& gpus, int device) {
  const std::string found = device_unsupported_reason(gpus, device);
  return found.empty() ? gpus.export_unsupported_reason(device).value_or("") : found;
}

std::string PeerOpening::own_unsupported_reason() const {
  std::string found = mapping_unsupported_reason(gpu_.gpus, gpu_.device);
  if (!found.empty() || shareable_ || opening_.own.bytes == 0) return found;
  return "the tensor was not made by altorch.empty(..., device='cuda'), so that no other rank can map it";
}

std::unique_ptr<RemoteMemory> PeerOpening::make(DeviceWindow::Memory memory) {
  return std::make_unique<DeviceWindow>(std::move(memory), rank_, opening_.own, gpu_.on_error,
                                        world_.co_resident(), atomics_unsupported_reasons());
}

std::unique_ptr<RemoteMemory> PeerOpening::open(std::string& unsupported_reason) {
  shareable_ = find_shareable(opening_.memory, opening_.own.bytes);
  MappedPart part;
  if (shareable_ && opening_.own.bytes > 0) part = {shareable_->bytes, shareable_->offset};
  if (!exchange_cards_on_node(own_unsupported_reason(), part, unsupported_reason)) return nullptr;
  unsupported_reason = unsupported_among();
  if (!unsupported_reason.empty()) return nullptr;
  DeviceWindow::Memory memory;
  Device::Exported signals;
  std::unique_ptr<RemoteMemory> made;
  const auto make_own = [&] {
    prepare(memory);
    signals = memory.device->export_memory(DeviceWindow::signal_bytes(size_));
    // A rank that has nothing passes on its signals once more, so that all take part alike.
    if (!shareable_) shareable_ = Shareable{Descriptor(dup(*signals.descriptor)), 0, 0};
  };
  const auto map_and_make = [&] {
    map_all(memory, signals);
    made = make(std::move(memory));
  };
  if (!attempt("prepared", make_own, unsupported_reason) ||
      !attempt("mapped", map_and_make, unsupported_reason))
    return nullptr;
  return made;
}

void PeerOpening::map_all(DeviceWindow::Memory& memory, const Device::Exported& signals) {
  memory.board = share(*memory.device, "board", DeviceWindow::board_bytes(size_));
  memory.signals = exchange("signals", *memory.device, signals.descriptor, signals.memory,
                            [](const DeviceHandle&, int ranks) {
                              return std::pair(DeviceWindow::signal_bytes(ranks), std::size_t{0});
                            });
  for (std::size_t rank = 0; rank < cards_.size(); ++rank) {
    if (!cards_[rank].shareable.holds(opening_.registered[rank].bytes)) throw outside(rank);
  }
  const DeviceMemory own(DeviceMemory(), opening_.memory);
  memory.of = exchange(
      "memory", *memory.device, shareable_->descriptor, own,
      [](const DeviceHandle& card, int) { return std::pair(card.shareable.bytes, card.shareable.offset); });
}

std::vector<DeviceMemory> PeerOpening::exchange(const std::string& key, Device& device,
                                                const Descriptor& descriptor, const DeviceMemory& own,
                                                Part part) {
  const auto descriptors =
      exchange_descriptors(opening_.store, key, rank_, size_, descriptor, opening_.timeout);
  std::vector<DeviceMemory> all;
  for (int other = 0; other < size_; ++other) {
    const auto at = static_cast<std::size_t>(other);
    const auto [bytes, offset] = part(cards_[at], size_);
    if (other == rank_ || bytes == 0) {
      all.push_back(other == rank_ ? own : nullptr);
      continue;
    }
    const DeviceMemory mapped = device.import_memory(descriptors[at], bytes);
    all.emplace_back(mapped, mapped.get() + offset);
  }
  return all;
}

}  // namespace altorch
