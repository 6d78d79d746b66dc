// SPDX-License-Identifier: BSD-3-Clause
// The ways to memory on the GPUs of other ranks.
#include <array>

#include "base/rounding.h"
#include "windows/nccl_window.h"
#include "windows/peer_opening.h"

namespace altorch {
namespace {

// Nothing of another rank's is reached, but pinned memory.
class StagedOpening : private DeviceOpening {
 public:
  explicit StagedOpening(const WindowOpening& opening) : DeviceOpening(opening) {}

  std::unique_ptr<RemoteMemory> open(std::string& unsupported_reason) {
    if (!exchange_cards(device_unsupported_reason(gpu_.gpus, gpu_.device), {}, unsupported_reason))
      return nullptr;
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
                                            /*co_resident=*/false, std::vector<std::string>(cards_.size()));
    };
    if (!attempt("prepared", make_own, unsupported_reason) ||
        !attempt("shared", share_all, unsupported_reason))
      return nullptr;
    return made;
  }
};

template <class Opening>
std::unique_ptr<RemoteMemory> open(const WindowOpening& opening, std::string& unsupported_reason) {
  unsupported_reason.clear();
  return Opening(opening).open(unsupported_reason);
}

template <std::string (&unsupported_reason)(const GpuSource&, int)>
std::optional<std::string> unsupported_here(int) {
  const std::string found = unsupported_reason(cuda_gpus(), 0);
  return found.empty() ? std::nullopt : std::optional(found);
}

constexpr std::array kDeviceRows = {
    WindowRow{"peer", unsupported_here<mapping_unsupported_reason>, open<PeerOpening>},
    WindowRow{"host_staged", unsupported_here<device_unsupported_reason>, open<StagedOpening>},
    WindowRow{"nccl", unsupported_here<nccl_window_unsupported_reason>, open_nccl_window},
};

}  // namespace

std::span<const WindowRow> device_window_rows() { return kDeviceRows; }

}  // namespace altorch
