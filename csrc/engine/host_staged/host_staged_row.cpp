// SPDX-License-Identifier: BSD-3-Clause
// Pinned memory that the ranks of one node share, as a route that a group may take.
#include "base/log.h"
#include "base/size_text.h"
#include "engine/host_staged/host_staged.h"
#include "engine/host_staged/layout.h"
#include "engine/host_staged/messages.h"
#include "engine/host_staged/pieces.h"
#include "engine/route/table.h"
#include "rendezvous/store_allgather.h"
#include "transports/shm/shared_memory.h"

namespace altorch {
namespace {

// What a rank reads of all others in one kernel beside NCCL: more takes longer than NCCL does. Set by
// benchmarks/cuda_collectives.py.
constexpr std::size_t kSmallReads = 192 << 10;
// The same in a graph, where the host's time does not count.
constexpr std::size_t kReadsInGraphs = 32 << 10;

std::optional<std::string> unsupported_on(const GpuSource& gpus, int device) {
  if (auto found = gpus.unsupported_reason(device)) return found;
  return gpus.kernel_unsupported_reason();
}

std::optional<std::string> unsupported_among(const World& world) {
  if (world.stranger) return "ranks 0 and " + std::to_string(*world.stranger) + " share no memory";
  if (world.ranks > DeviceReduction::kMaxParts)
    return "there are more than " + std::to_string(DeviceReduction::kMaxParts) + " ranks";
  return std::nullopt;
}

// What goes in one kernel counts on the device; pieces have flags that differ from replay to replay.
std::optional<std::string> capture_unsupported_reason(const Operation& operation, const World& world) {
  if (operation.kind == OpKind::kBarrier) return std::nullopt;
  if (!world.kernels_meet()) return "ranks share a GPU, on which no kernel can wait for another";
  const BoardLayout layout = board_layout(world.ranks);
  if (!SmallExchanges::fits(operation, world.ranks, layout.small_bytes) &&
      !SmallExchanges::goes_in_pairs(operation, layout.pair_bytes()))
    return "it is no small collective, and its flags differ from replay to replay";
  const auto beside_nccl = kReadsInGraphs / static_cast<std::size_t>(std::max(1, world.ranks - 1));
  if (!world.missing[index_of(gpu_rows::nccl)] && !SmallExchanges::fits(operation, world.ranks, beside_nccl))
    return "it is not small enough to be faster than NCCL there";
  return std::nullopt;
}

std::size_t pair_bytes(int ranks) { return board_layout(ranks).pair_bytes(); }

const char* takes_small(const Operation& operation, const World& world) {
  if (world.ranks < 2 || !world.kernels_meet() || !is_vector_collective(operation.kind)) return nullptr;
  const std::size_t reads = kSmallReads / static_cast<std::size_t>(world.ranks - 1);
  if (!SmallExchanges::fits(operation, world.ranks, std::min(kSmallBesideNccl, reads))) return nullptr;
  return "small, on one node: the host is done in half the time that NCCL needs";
}

std::string steps(const Operation& asked, const World& world) {
  const BoardLayout layout = board_layout(world.ranks);
  const auto element = static_cast<std::int64_t>(size_of(asked.dtype));
  if (world.kernels_meet() && SmallExchanges::goes_in_pairs(asked, layout.pair_bytes()))
    return "one kernel per rank: it posts a block for each other rank, and takes theirs when they are "
           "there\n";
  if (!is_vector_collective(asked.kind)) {
    const std::size_t pieces =
        pieces_of(static_cast<std::size_t>(asked.count * element), layout.message_bytes);
    return std::to_string(pieces) + " piece(s) of up to " +
           size_text(static_cast<std::int64_t>(layout.message_bytes)) +
           " for each pair of ranks: the sender's GPU copies out, the receiver's copies in\n";
  }
  if (world.kernels_meet() && SmallExchanges::fits(asked, world.ranks, layout.small_bytes))
    return "one kernel per rank: it posts this rank's part, and takes the others' when they are there\n";
  const PieceCutter cutter(asked, 0, world.ranks, HostStaged::step_of(asked, world.ranks, layout.slot_bytes));
  std::string text = std::to_string(cutter.pieces()) + " piece(s) of up to " +
                     size_text(std::min(cutter.step(), asked.count) * element) +
                     ": each rank copies to pinned memory what others need; ";
  if (asked.reduces()) text += "reduces its share of all ranks'; ";
  return text + "copies in what it lacks; pieces overlap\n";
}

Opened open(GpuGroup& group) {
  const int rank = group.communicator.rank(), size = group.communicator.size();
  auto device = group.options.gpus.open(group.device, !group.world.kernels_meet());
  BoardLayout layout = board_layout(size);
  layout.small_blocks = std::min(layout.small_blocks, group.world.waiting_blocks);
  PinnedMemory memory;
  DeviceMemory scratch;
  std::string unsupported_reason;
  try {
    memory = device->pin(
        share_memory(group.store, "host_staged/segment", rank, size, layout.bytes(), group.timeout),
        layout.bytes());
    scratch = device->allocate(HostStaged::scratch_bytes(layout));
  } catch (const Error& error) {
    unsupported_reason = error.what();
  }
  if (const auto why = first_unsupported_reason(group.store, "host_staged", rank, size, group.timeout,
                                                "to share memory for its CUDA tensors", unsupported_reason)) {
    log(LogLevel::kWarning,
        "CUDA tensors of group '" + group.communicator.name() + "' go the slower way by host_relay: " + *why);
    return {nullptr, *why};
  }
  return {std::make_unique<HostStaged>(std::move(device), Board(std::move(memory), layout, rank),
                                       std::move(scratch), rank, group.world.kernels_meet()),
          ""};
}

}  // namespace

extern const GpuRouteRow gpu_rows::host_staged = {
    .name = "host_staged",
    .instead = "peer",
    .reason = "the GPUs exchange through pinned memory themselves",
    .pairs_reason = "small blocks, on one node: the host is done in half the time that NCCL needs",
    .in_rank_order = true,
    .unsupported_on = unsupported_on,
    .unsupported_among = unsupported_among,
    .unsupported_to = host_staged_unsupported_reason,
    .capture_unsupported_reason = capture_unsupported_reason,
    .takes_small = takes_small,
    .pair_bytes = pair_bytes,
    .steps = steps,
    .open = open,
};

}  // namespace altorch
