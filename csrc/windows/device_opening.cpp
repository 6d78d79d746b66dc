// SPDX-License-Identifier: BSD-3-Clause
#include "windows/device_opening.h"

#include "rendezvous/shared_memory.h"
#include "rendezvous/store_allgather.h"

namespace altorch {
namespace {

const std::string kDevicePurpose = "to open a window on GPUs";

}  // namespace

std::string device_unsupported_reason(const GpuSource& gpus, int device) {
  if (const auto found = gpus.unsupported_reason(device)) return *found;
  return gpus.kernel_unsupported_reason().value_or("");
}

bool DeviceOpening::exchange_cards(const std::string& own_reason, const MappedPart& shareable,
                                   std::string& unsupported_reason) {
  DeviceHandle own;
  own.gpu = {.gpu = gpu_.gpus.identity(gpu_.device),
             .node = gpu_.gpus.node(),
             .mps = gpu_.gpus.mps(gpu_.device),
             .unsupported_reasons = {}};
  own.unsupported_reason = own_reason;
  own.shareable = shareable;
  std::vector<GpuPeerInfo> gpus;
  for (const std::string& text :
       store_allgather(opening_.store, "cards", rank_, size_, opening_.timeout, kDevicePurpose, own.text())) {
    cards_.push_back(DeviceHandle::from(text));
    gpus.push_back(cards_.back().gpu);
  }
  world_ = World::of(gpus);
  for (std::size_t rank = 0; rank < cards_.size() && unsupported_reason.empty(); ++rank) {
    if (!cards_[rank].unsupported_reason.empty())
      unsupported_reason = "on rank " + std::to_string(rank) + " " + cards_[rank].unsupported_reason;
  }
  return unsupported_reason.empty();
}

bool DeviceOpening::exchange_cards_on_node(const std::string& own_reason, const MappedPart& shareable,
                                           std::string& unsupported_reason) {
  if (exchange_cards(own_reason, shareable, unsupported_reason) && world_.first_remote_rank)
    unsupported_reason = "ranks 0 and " + std::to_string(*world_.first_remote_rank) + " are not on one node";
  return unsupported_reason.empty();
}

bool DeviceOpening::attempt(const std::string& key, const std::function<void()>& act,
                            std::string& unsupported_reason) const {
  std::string own_reason;
  try {
    act();
  } catch (const Error& error) {
    if (ends_a_wait(error.kind())) throw;
    own_reason = error.what();
  }
  const auto why = first_unsupported_reason(opening_.store, key, rank_, size_, opening_.timeout,
                                            kDevicePurpose, own_reason);
  if (why) unsupported_reason = *why;
  return !why;
}

void DeviceOpening::prepare(DeviceWindow::Memory& memory) const {
  memory.device = gpu_.gpus.open(gpu_.device, !world_.co_resident());
  memory.counts = memory.device->allocate(DeviceWindow::count_bytes(size_));
  memory.told = memory.device->pin(DeviceWindow::told_bytes(size_));
}

std::vector<std::string> DeviceOpening::atomics_unsupported_reasons() const {
  std::vector<std::string> all;
  for (const DeviceHandle& peer : cards_) {
    const auto found = gpu_.gpus.atomics_unsupported_reason
                           ? gpu_.gpus.atomics_unsupported_reason(gpu_.device, peer.gpu.gpu)
                           : std::nullopt;
    all.push_back(found.value_or(""));
  }
  return all;
}

PinnedMemory DeviceOpening::share(Device& device, const std::string& key, std::size_t bytes) const {
  return device.pin(share_memory(opening_.store, key, rank_, size_, bytes, opening_.timeout), bytes);
}

}  // namespace altorch
