// SPDX-License-Identifier: BSD-3-Clause
// Memory of the ranks' own GPUs, which they map, as a route that a group may take.
#include <algorithm>

#include "base/shape.h"
#include "base/size_text.h"
#include "gpu/host_staged/messages.h"
#include "gpu/host_staged/pieces.h"
#include "gpu/peer/peer.h"
#include "gpu/route_opening.h"
#include "rendezvous/shared_memory.h"
#include "rendezvous/store_allgather.h"

namespace altorch {
namespace {

constexpr std::size_t kNoteBytes = 4096;
// Of each rank's GPU, about.
constexpr std::size_t kMemory = 48 << 20;
// The most bytes that a rank sends if this route replaces NCCL: up to these sizes the device is
// done earlier. Measured by benchmarks/cuda_collectives.py on two H100s and H200s linked by NVLink,
// up to 256 MiB in all, and on four H200s. Kernels that run beside it are done no later, either
// (benchmarks/cuda_overlap.py). Among more ranks, larger sizes are not measured yet.
constexpr int kFew = 4;
constexpr std::size_t kReducedAmongFew = 16 << 20, kReduceScatteredAmongFew = 64 << 20,
                      kGatheredAmongFew = 16 << 20, kBroadcastAmongFew = 4 << 20;
constexpr std::size_t kBesideNccl = 64 << 10, kReducedBetweenTwo = 8 << 20, kMovedBetweenTwo = 16 << 20,
                      kBetweenTwoLinked = 256 << 20, kBroadcastBetweenTwoLinked = 64 << 20;

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

bool are_few(const World& world) { return world.ranks == 2 || (world.linked && world.ranks <= kFew); }

// What a rank sends at most, as fits() counts it, where they are few; 0: nothing.
std::size_t most_among_few(OpKind kind, const World& world) {
  if (world.ranks == 2) {
    if (world.linked && kind == OpKind::kBroadcast) return kBroadcastBetweenTwoLinked;
    const bool reduces = kind == OpKind::kAllReduce || kind == OpKind::kReduce;
    const std::size_t all = world.linked ? kBetweenTwoLinked
                            : reduces    ? kReducedBetweenTwo
                                         : kMovedBetweenTwo;
    return kind == OpKind::kAllGather ? all / 2 : all;
  }
  return kind == OpKind::kAllReduce       ? kReducedAmongFew
         : kind == OpKind::kReduceScatter ? kReduceScatteredAmongFew
         : kind == OpKind::kAllGather     ? kGatheredAmongFew
         : kind == OpKind::kBroadcast     ? kBroadcastAmongFew
                                          : 0;
}

// Sizes that all ranks know alike. Those of an all_to_all they don't, so that all of it goes one
// way.
const char* takes_small(const Operation& operation, const World& world) {
  const std::size_t small = PeerLayout::ll_bytes_among(world.ranks);
  if (LlExchanges::fits(operation, world.ranks, std::min(kBesideNccl, small)))
    return "small: one kernel that writes into the memory of the other GPUs";
  if (!are_few(world)) return nullptr;
  if (!exchanges(operation.kind) &&
      !LlExchanges::fits(operation, world.ranks, most_among_few(operation.kind, world)))
    return nullptr;
  return world.ranks == 2 ? "two GPUs: one kernel that writes into the memory of the other"
                          : "few GPUs: one kernel that writes into the memory of the others";
}

std::string steps(const Operation& asked, const World& world) {
  const PeerLayout layout = PeerLayout::fitting(world.ranks, kMemory, world.linked);
  const bool alike = LlExchanges::fits(asked, world.ranks, layout.ll_bytes);
  const auto bytes = asked.count * static_cast<std::int64_t>(size_of(asked.dtype));
  if (alike || (exchanges(asked.kind) && bytes <= static_cast<std::int64_t>(layout.pair_bytes)))
    return "one kernel per rank, by LL: it writes this rank's part into the others' memory, with a number "
           "beside "
           "every four "
           "bytes, and takes theirs when they are there\n";
  const std::string upto = " of up to " + size_text(static_cast<std::int64_t>(layout.part_bytes)) +
                           " for each rank and block of threads: ";
  if (!asked.is_message() && (asked.reduces() ? layout.reduces_by_ll128() : layout.moves_by_ll128(bytes)))
    return "one kernel per rank, by LL128: it writes this rank's part into the others' memory in lines of "
           "128 bytes, "
           "with a number in every line, and " +
           std::string(asked.reduces() ? "reduces" : "takes") + " theirs when they are there" +
           (asked.reduces() && !scatters(asked.kind) && layout.is_two_shot(bytes)
                ? ": a share of them, which it passes on likewise\n"
                : "\n");
  if (asked.reduces() && !scatters(asked.kind) && layout.reduces_two_shot())
    return "one kernel per rank, in rounds" + upto +
           "it writes into the others' memory, raises a flag, reduces its share of all ranks', "
           "and passes that on\n";
  return "one kernel per rank, in chunks" + upto +
         "half of its blocks write into the others' memory, with a flag behind each chunk, the other half " +
         (asked.reduces() ? "reduce" : "take") + " what has come\n";
}

OpenedRoute open(RouteOpening& opening) {
  const int rank = opening.communicator.rank(), size = opening.communicator.size();
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
      unsupported_reason = error.what();
    }
  };
  const auto any_unsupported_reason = [&](const std::string& key) {
    return first_unsupported_reason(opening.store, key, rank, size, opening.timeout,
                                    "to share memory of its GPU", unsupported_reason);
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
  attempt([&] { made = std::make_unique<PeerRoute>(std::move(device), std::move(memory), layout, rank); });
  if (auto why = any_unsupported_reason("peer/mapped")) return {nullptr, *why};
  return {std::move(made), ""};
}

}  // namespace

extern const GpuRouteRow gpu_rows::peer = {
    .name = "peer",
    .reason = "the GPUs write into each other's memory",
    .pairs_reason = "small blocks: one kernel that writes into the memory of the other GPUs",
    .in_rank_order = true,
    .unsupported_on = unsupported_on,
    .unsupported_among = unsupported_among,
    .unsupported_to = kernel_route_unsupported_reason,
    .takes_small = takes_small,
    .pair_bytes = [](int ranks) { return PeerLayout::pair_bytes_among(ranks); },
    .steps = steps,
    .open = open,
};

}  // namespace altorch
