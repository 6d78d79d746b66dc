// Pinned memory that the ranks of one node share, as a route that a group may take.
#include "common/log.h"
#include "common/meeting.h"
#include "common/size_text.h"
#include "engine/host_staged/host_staged.h"
#include "engine/host_staged/layout.h"
#include "engine/host_staged/messages.h"
#include "engine/host_staged/pieces.h"
#include "engine/route/table.h"
#include "transports/shm/shared_memory.h"

namespace altorch {
namespace {

// What a rank reads of all others in one kernel beside NCCL: more takes longer than NCCL does. Set by
// benchmarks/cuda_collectives.py.
constexpr std::size_t kSmallReads = 192 << 10;

std::optional<std::string> obstacle_on(const GpuSource& gpus, int device) {
  if (auto found = gpus.obstacle(device)) return found;
  return gpus.kernel_obstacle();
}

std::optional<std::string> obstacle_among(const World& world) {
  if (world.stranger) return "ranks 0 and " + std::to_string(*world.stranger) + " share no memory";
  if (world.ranks > DeviceReduction::kMaxParts)
    return "there are more than " + std::to_string(DeviceReduction::kMaxParts) + " ranks";
  return std::nullopt;
}

const char* takes_small(const Operation& operation, const World& world) {
  if (world.ranks < 2 || !world.own_gpus() || !is_vector_collective(operation.kind)) return nullptr;
  const std::size_t reads = kSmallReads / static_cast<std::size_t>(world.ranks - 1);
  if (!HostStaged::is_small(operation, world.ranks, std::min(kSmallBesideNccl, reads))) return nullptr;
  return "small, on one node: the host is done in half the time that NCCL needs";
}

std::string steps(const Operation& asked, const World& world) {
  const BoardLayout layout = board_layout(world.ranks);
  const auto element = static_cast<std::int64_t>(size_of(asked.dtype));
  if (world.own_gpus() && goes_in_pairs(asked, world.ranks))
    return "one kernel per rank: it posts a block for each other rank, and takes theirs when they are "
           "there\n";
  if (!is_vector_collective(asked.kind)) {
    const std::size_t pieces =
        pieces_of(static_cast<std::size_t>(asked.count * element), layout.message_bytes);
    return std::to_string(pieces) + " piece(s) of up to " +
           size_text(static_cast<std::int64_t>(layout.message_bytes)) +
           " for each pair of ranks: the sender's GPU copies out, the receiver's copies in\n";
  }
  if (world.own_gpus() && HostStaged::is_small(asked, world.ranks, layout.small_bytes))
    return "one kernel per rank: it posts this rank's part, and takes the others' when they are there\n";
  const PieceCutter cutter(asked, 0, world.ranks, HostStaged::step_of(asked, world.ranks, layout.slot_bytes));
  std::string text = std::to_string(cutter.pieces()) + " piece(s) of up to " +
                     size_text(std::min(cutter.step(), asked.count) * element) +
                     ": each rank copies to pinned memory what others need; ";
  if (asked.reduces()) text += "reduces its share of everybody's; ";
  return text + "copies in what it lacks; pieces overlap\n";
}

Opened open(GpuGroup& group) {
  const int rank = group.communicator.rank(), size = group.communicator.size();
  auto device = group.options.gpus.open(group.device, !group.world.own_gpus());
  const BoardLayout layout = board_layout(size);
  PinnedMemory memory;
  DeviceMemory scratch;
  std::string obstacle;
  try {
    memory = device->pin(
        share_memory(group.store, "host_staged/segment", rank, size, layout.bytes(), group.timeout),
        layout.bytes());
    scratch = device->allocate(HostStaged::scratch_bytes(layout));
  } catch (const Error& error) {
    obstacle = error.what();
  }
  const auto verdicts = meet(group.store, "host_staged", rank, size, group.timeout,
                             "to share memory for its CUDA tensors", obstacle);
  for (std::size_t other = 0; other < verdicts.size(); ++other) {
    if (verdicts[other].empty()) continue;
    const std::string why = "on rank " + std::to_string(other) + " " + verdicts[other];
    log(LogLevel::kWarning,
        "CUDA tensors of group '" + group.communicator.name() + "' go the slower way by host_relay: " + why);
    return {nullptr, why};
  }
  return {std::make_unique<HostStaged>(std::move(device), Board(std::move(memory), layout, rank),
                                       std::move(scratch), rank, group.world.own_gpus()),
          ""};
}

}  // namespace

extern const GpuRouteRow gpu_rows::host_staged = {
    .name = "host_staged",
    .instead = "",
    .reason = "the GPUs exchange through pinned memory themselves",
    .obstacle_on = obstacle_on,
    .obstacle_among = obstacle_among,
    .obstacle_to = host_staged_obstacle,
    .takes_small = takes_small,
    .steps = steps,
    .open = open,
};

}  // namespace altorch
