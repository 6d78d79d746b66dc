// The ways to memory on the GPUs of other ranks.
#include <array>

#include "common/rounding.h"
#include "engine/window/nccl_window.h"
#include "engine/window/peer_opening.h"

namespace altorch {
namespace {

// Nothing of another rank's is reached, but pinned memory.
class StagedOpening : private DeviceOpening {
 public:
  explicit StagedOpening(const WindowOpening& opening) : DeviceOpening(opening) {}

  std::unique_ptr<RemoteMemory> open(std::string& why_not) {
    if (!meet_others(device_obstacle(gpu_.gpus, gpu_.device), {}, why_not)) return nullptr;
    DeviceWindow::Memory memory;
    std::unique_ptr<RemoteMemory> made;
    const auto make_own = [&] {
      prepare(memory);
      memory.serving = gpu_.gpus.open_beside(gpu_.device);
    };
    const auto share_all = [&] {
      const std::size_t board = rounded_up(DeviceWindow::board_bytes(size_), sizeof(Flag));
      memory.board = share(*memory.device, "board", board + StagedBoard::bytes(size_));
      memory.staged = PinnedMemory(memory.board, memory.board.get() + board);
      memory.of.resize(cards_.size());
      memory.of[static_cast<std::size_t>(rank_)] = DeviceMemory(DeviceMemory(), opening_.memory);
      made = std::make_unique<DeviceWindow>(std::move(memory), rank_, opening_.own, gpu_.on_error,
                                            /*kernels_meet=*/false, std::vector<std::string>(cards_.size()));
    };
    if (!attempt("prepared", make_own, why_not) || !attempt("shared", share_all, why_not)) return nullptr;
    return made;
  }
};

template <class Opening>
std::unique_ptr<RemoteMemory> open(const WindowOpening& opening, std::string& why_not) {
  why_not.clear();
  return Opening(opening).open(why_not);
}

template <std::string (&obstacle)(const GpuSource&, int)>
std::optional<std::string> obstacle_here(int) {
  const std::string found = obstacle(cuda_gpus(), 0);
  return found.empty() ? std::nullopt : std::optional(found);
}

constexpr std::array kDeviceRows = {
    WindowRow{"peer", "memory of the GPUs of ranks on this node, which they map",
              obstacle_here<obstacle_to_mapping>, open<PeerOpening>},
    WindowRow{"host_staged",
              "pinned memory that ranks on this node share, and the help of the target's process",
              obstacle_here<device_obstacle>, open<StagedOpening>},
    WindowRow{"nccl", "NCCL's own windows beside mapped memory; only where ALTORCH_ROUTE=window=nccl asks",
              obstacle_here<obstacle_to_nccl_window>, open_nccl_window},
};

}  // namespace

std::span<const WindowRow> device_window_rows() { return kDeviceRows; }

}  // namespace altorch
