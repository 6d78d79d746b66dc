// Large collectives between GPUs that map each other's memory, by copy engines: what computes beside them keeps its
// multiprocessors, but for the kernels that reduce. The steps are those of pinned memory (host_staged.h), with slots in memory
// of the GPUs.
#include <algorithm>

#include "common/size_text.h"
#include "engine/host_staged/host_staged.h"
#include "engine/host_staged/pieces.h"
#include "engine/peer/shared_memory.h"
#include "engine/route/table.h"

namespace altorch {
namespace {

// So large that a copy takes long beside the flags before and behind it.
constexpr std::size_t kSlots = 4, kSlotBytes = 16 << 20;
// Below, a kernel is done before copies have begun.
constexpr std::int64_t kSmallest = 512 << 10;

class PeerCopies : public HostStaged {
 public:
  using HostStaged::HostStaged;
  const char* name() const override { return "peer_copies"; }
};

BoardLayout layout_for(int ranks) {
  return {.ranks = ranks,
          .slots = kSlots,
          .slot_bytes = kSlotBytes,
          .message_bytes = 0,
          .small_bytes = 4096,
          .slots_on_gpus = true};
}

std::optional<std::string> obstacle_to(const Operation& operation) {
  if (!is_vector_collective(operation.kind)) return "it exchanges blocks, which kernels carry";
  const auto counts = operation.kind == OpKind::kAllGather ? operation.output_counts : operation.input_counts;
  const std::int64_t longest =
      counts.empty() ? operation.count : *std::max_element(counts.begin(), counts.end());
  if (longest * static_cast<std::int64_t>(size_of(operation.dtype)) >= kSmallest) return std::nullopt;
  return "it is smaller than " + size_text(kSmallest) + ", which a kernel carries sooner";
}

std::string steps(const Operation& asked, const World& world) {
  const PieceCutter cutter(asked, 0, world.ranks, HostStaged::step_of(asked, world.ranks, kSlotBytes));
  const auto element = static_cast<std::int64_t>(size_of(asked.dtype));
  std::string text = std::to_string(cutter.pieces()) + " piece(s) of up to " +
                     size_text(std::min(cutter.step(), asked.count) * element) +
                     ": copy engines bring to each rank what it needs of the others; ";
  if (asked.reduces()) text += "a kernel reduces its share of everybody's; ";
  return text + "pieces overlap\n";
}

// Pinned memory for the flags, memory of the GPU for what is copied.
Opened open(GpuGroup& group) {
  const int rank = group.communicator.rank();
  const BoardLayout layout = layout_for(group.communicator.size());
  auto device = group.options.gpus.open(group.device, !group.world.kernels_meet());
  return open_with_peer_memory(
      group, *device, "peer_copies", layout.slots_bytes(), layout.bytes(), [&](PeerMemory memory) {
        DeviceMemory scratch = device->allocate(HostStaged::scratch_bytes(layout));
        Board board(std::move(memory.pinned), layout, rank, std::move(memory.of));
        return std::make_unique<PeerCopies>(std::move(device), std::move(board), std::move(scratch), rank,
                                            /*own_gpus=*/false);
      });
}

std::optional<std::string> obstacle_on(const GpuSource& gpus, int device) {
  return gpu_rows::peer.obstacle_on(gpus, device);
}
std::optional<std::string> obstacle_among(const World& world) { return gpu_rows::peer.obstacle_among(world); }

}  // namespace

extern const GpuRouteRow gpu_rows::peer_copies = {
    .name = "peer_copies",
    .instead = "",
    .reason = "copy engines copy between the GPUs",
    .only_asked = true,
    .in_rank_order = true,
    .obstacle_on = obstacle_on,
    .obstacle_among = obstacle_among,
    .obstacle_to = obstacle_to,
    .obstacle_to_capture = [](const Operation&, const World&) -> std::optional<std::string> {
      return "its flags differ from replay to replay";
    },
    .takes_small = [](const Operation&, const World&) -> const char* { return nullptr; },
    .pair_bytes = nullptr,
    .steps = steps,
    .open = open,
};

}  // namespace altorch
