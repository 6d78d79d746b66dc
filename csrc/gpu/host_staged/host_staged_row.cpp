// SPDX-License-Identifier: BSD-3-Clause
// Pinned memory that the ranks of one node share, as a route that a group may take.
#include "base/log.h"
#include "base/size_text.h"
#include "gpu/host_staged/host_staged.h"
#include "gpu/host_staged/messages.h"
#include "gpu/host_staged/pieces.h"
#include "gpu/host_staged/pinned_bytes.h"
#include "gpu/route_opening.h"
#include "rendezvous/shared_memory.h"

namespace altorch {
namespace {

// What a rank reads of all others in one kernel beside NCCL in a graph, where the host's time does
// not count. Set by benchmarks/cuda_collectives.py.
constexpr std::size_t kReadsInGraphs = 32 << 10;

std::optional<std::string> unsupported_on(const GpuSource& gpus, int device) {
  if (auto found = gpus.unsupported_reason(device)) return found;
  return gpus.kernel_unsupported_reason();
}

std::optional<std::string> unsupported_among(const World& world) {
  if (world.first_remote_rank)
    return "ranks 0 and " + std::to_string(*world.first_remote_rank) + " share no memory";
  if (world.ranks > DeviceReduction::kMaxParts)
    return "there are more than " + std::to_string(DeviceReduction::kMaxParts) + " ranks";
  return std::nullopt;
}

// What goes in one kernel counts on the device; pieces have flags that differ from replay to
// replay.
std::optional<std::string> capture_unsupported_reason(const Operation& operation, const World& world,
                                                      std::string_view asked) {
  if (operation.kind == OpKind::kBarrier) return std::nullopt;
  if (!world.co_resident()) return "ranks share a GPU, on which no kernel can wait for another";
  const BoardLayout layout = board_layout(world.ranks);
  const StagedProtocolId id =
      protocol_of(staged_protocols(), operation, {layout, world.co_resident()}, asked).id;
  if (id != StagedProtocolId::kLl &&
      !(id == StagedProtocolId::kPairs && LlExchanges::goes_in_pairs(operation, layout.pair_bytes())))
    return "it is no small collective, and its flags differ from replay to replay";
  const auto beside_nccl = kReadsInGraphs / static_cast<std::size_t>(std::max(1, world.ranks - 1));
  if (!world.missing[index_of(gpu_rows::nccl)] && !LlExchanges::fits(operation, world.ranks, beside_nccl))
    return "NCCL is faster in a graph, except for small vectors";
  return std::nullopt;
}

std::size_t pair_bytes(int ranks) { return board_layout(ranks).pair_bytes(); }

ExplainedProtocol explain(const Operation& asked, const World& world, std::string_view protocol) {
  const BoardLayout layout = board_layout(world.ranks);
  return explain_protocol(staged_protocols(), asked, {layout, world.co_resident()}, protocol);
}

OpenedRoute open(RouteOpening& opening) {
  const int rank = opening.rank(), size = opening.size();
  auto device = opening.options.gpus.open(opening.device, !opening.world.co_resident());
  BoardLayout layout = board_layout(size);
  layout.ll_blocks = std::min(layout.ll_blocks, opening.world.waiting_blocks);
  PinnedMemory memory;
  DeviceMemory scratch;
  std::string unsupported_reason;
  try {
    memory = device->pin(
        share_memory(opening.store, "host_staged/segment", rank, size, layout.bytes(), opening.timeout),
        layout.bytes());
    scratch = device->allocate(HostStaged::scratch_bytes(layout));
  } catch (const Error& error) {
    unsupported_reason = error.what();
  }
  if (const auto why = opening.first_unsupported_reason("host_staged", "to share memory for its CUDA tensors",
                                                        unsupported_reason)) {
    log(LogLevel::kWarning, "CUDA tensors of group '" + opening.communicator.name() +
                                "' go a slower way than by host_staged: " + *why);
    return {nullptr, *why};
  }
  return {
      std::make_unique<HostStaged>(std::move(device), Board(std::move(memory), layout, rank),
                                   std::move(scratch), rank, opening.world.co_resident(), 0, opening.rules),
      ""};
}

}  // namespace

extern const GpuRouteRow gpu_rows::host_staged = {
    .name = "host_staged",
    .fallback_for = {"peer"},
    .in_rank_order = true,
    .unsupported_on = unsupported_on,
    .unsupported_among = unsupported_among,
    .unsupported_to = [](const Operation& operation,
                         const World&) { return kernel_route_unsupported_reason(operation); },
    .capture_unsupported_reason = capture_unsupported_reason,
    .pair_bytes = pair_bytes,
    .protocols = [] { return names_of(staged_protocols()); },
    .explain = explain,
    .open = open,
};

}  // namespace altorch
