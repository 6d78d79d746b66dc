// SPDX-License-Identifier: BSD-3-Clause
// Memory of the ranks' own GPUs, which they map, as a route that a group may take.
#include <algorithm>

#include "gpu/host_staged/messages.h"
#include "gpu/peer/peer.h"
#include "gpu/route_opening.h"
#include "rendezvous/shared_memory.h"

namespace altorch {
namespace {

constexpr std::size_t kNoteBytes = 4096;
// Of each rank's GPU, about.
constexpr std::size_t kMemory = 48 << 20;

std::optional<std::string> unsupported_on(const GpuSource& gpus, int device) {
  if (auto found = gpus.unsupported_reason(device)) return found;
  if (auto found = gpus.kernel_unsupported_reason()) return found;
  return gpus.export_unsupported_reason(device);
}

std::optional<std::string> unsupported_among(const World& world) {
  if (world.ranks < 2) return "a rank alone has no peer";
  if (world.ranks > BulkSlots::kMostRanks)
    return "there are more than " + std::to_string(BulkSlots::kMostRanks) + " ranks";
  if (world.first_remote_rank)
    return "ranks 0 and " + std::to_string(*world.first_remote_rank) + " are not on one node";
  if (world.co_resident()) return std::nullopt;
  return "ranks " + std::to_string(world.same_gpu->first) + " and " + std::to_string(world.same_gpu->second) +
         " share one GPU, on which a kernel can wait for another one's only under MPS";
}

ExplainedProtocol explain(const Operation& asked, const World& world, std::string_view protocol) {
  return explain_protocol(peer_protocols(), asked, PeerLayout::fitting(world.ranks, kMemory, world.linked),
                          protocol);
}

OpenedRoute open(RouteOpening& opening) {
  const int rank = opening.rank(), size = opening.size();
  const int most_blocks = opening.options.nccl.max_ctas;  // of Options; the ranks have compared it
  int blocks = most_blocks > 0 ? most_blocks : PeerLayout::kUsualBlocks;
  const int beside = opening.world.waiting_blocks;
  blocks = std::min(blocks, beside);
  const PeerLayout layout = PeerLayout::fitting(size, kMemory, opening.world.linked, blocks,
                                                most_blocks > 0 ? most_blocks : PeerLayout::kAny, beside);
  auto device = opening.options.gpus.open(opening.device, !opening.world.co_resident());
  Device::Exported exported;
  PeerRoute::Memory memory;
  std::string unsupported_reason;
  const auto attempt = [&](const auto& act) {
    if (!unsupported_reason.empty()) return;
    try {
      act();
    } catch (const Error& error) {
      if (ends_a_wait(error.kind())) throw;
      unsupported_reason = error.what();
    }
  };
  const auto any_unsupported_reason = [&](const std::string& key) {
    return opening.first_unsupported_reason(key, "to share memory of its GPU", unsupported_reason);
  };
  attempt([&] { exported = device->export_memory(layout.bytes()); });
  if (auto why = any_unsupported_reason("peer/exported")) return {nullptr, *why};
  attempt([&] {
    memory.note = device->pin(
        share_memory(opening.store, "peer/note", rank, size, kNoteBytes, opening.timeout), kNoteBytes);
  });
  if (auto why = any_unsupported_reason("peer/noted")) return {nullptr, *why};
  attempt([&] {
    const auto descriptors =
        exchange_descriptors(opening.store, "peer/memory", rank, size, exported.descriptor, opening.timeout);
    for (int other = 0; other < size; ++other) {
      const Descriptor& descriptor = descriptors[static_cast<std::size_t>(other)];
      memory.of.push_back(other == rank ? exported.memory
                                        : device->import_memory(descriptor, layout.bytes()));
    }
  });
  std::unique_ptr<PeerRoute> made;
  attempt([&] {
    made = std::make_unique<PeerRoute>(std::move(device), std::move(memory), layout, rank, opening.rules);
  });
  if (auto why = any_unsupported_reason("peer/mapped")) return {nullptr, *why};
  return {std::move(made), ""};
}

}  // namespace

extern const GpuRouteRow gpu_rows::peer = {
    .name = "peer",
    .in_rank_order = true,
    .sums_in_8_bits = true,
    .unsupported_on = unsupported_on,
    .unsupported_among = unsupported_among,
    .unsupported_to = [](const Operation& operation,
                         const World&) { return kernel_route_unsupported_reason(operation); },
    .pair_bytes = [](int ranks) { return PeerLayout::pair_bytes_among(ranks); },
    .protocols = [] { return names_of(peer_protocols()); },
    .explain = explain,
    .open = open,
};

}  // namespace altorch
