// SPDX-License-Identifier: BSD-3-Clause
// The ways to memory on the GPUs of other ranks.
#include <array>

#include "base/rounding.h"
#include "windows/nccl_window.h"
#include "windows/peer_opening.h"
#include "windows/relayed_window.h"

namespace altorch {
namespace {

// Nothing of another rank's is reached, but pinned memory.
class StagedOpening : protected DeviceOpening {
 public:
  explicit StagedOpening(const WindowOpening& opening) : DeviceOpening(opening) {}
  virtual ~StagedOpening() = default;

  std::unique_ptr<RemoteMemory> open(std::string& unsupported_reason) {
    if (!exchange(unsupported_reason)) return nullptr;
    DeviceWindow::Memory memory;
    std::unique_ptr<RemoteMemory> made;
    const auto make_own = [&] {
      prepare(memory);
      memory.serving = gpu_.gpus.open_beside(gpu_.device);
    };
    const auto make_boards = [&] {
      const std::size_t board = rounded_up(DeviceWindow::board_bytes(size_), sizeof(Flag));
      memory.is_relayed = is_relayed();
      memory.board =
          pin(*memory.device, board + StagedBoard::bytes(size_, is_relayed() ? rank_ : StagedBoard::kShared));
      memory.staged = PinnedMemory(memory.board, memory.board.get() + board);
      memory.of.resize(cards_.size());
      memory.of[static_cast<std::size_t>(rank_)] = DeviceMemory(DeviceMemory(), opening_.memory);
      made = make(std::move(memory));
    };
    if (!attempt("prepared", make_own, unsupported_reason) ||
        !attempt("shared", make_boards, unsupported_reason))
      return nullptr;
    return made;
  }

 private:
  virtual bool exchange(std::string& unsupported_reason) {
    return exchange_cards_on_node(device_unsupported_reason(gpu_.gpus, gpu_.device), {}, unsupported_reason);
  }
  virtual bool is_relayed() const { return false; }
  virtual PinnedMemory pin(Device& device, std::size_t bytes) const { return share(device, "board", bytes); }
  virtual std::unique_ptr<RemoteMemory> make(DeviceWindow::Memory memory) const {
    return std::make_unique<DeviceWindow>(std::move(memory), rank_, opening_.own, gpu_.on_error,
                                          /*co_resident=*/false, std::vector<std::string>(cards_.size()));
  }
};

// Nothing of another rank's is reached.
class RelayOpening final : public StagedOpening {
 public:
  using StagedOpening::StagedOpening;

 private:
  bool exchange(std::string& unsupported_reason) override {
    return exchange_cards(device_unsupported_reason(gpu_.gpus, gpu_.device), {}, unsupported_reason);
  }
  bool is_relayed() const override { return true; }
  PinnedMemory pin(Device& device, std::size_t bytes) const override { return device.pin(bytes); }
  std::unique_ptr<RemoteMemory> make(DeviceWindow::Memory memory) const override {
    return std::make_unique<RelayedWindow>(std::move(memory), rank_, opening_.own, gpu_.on_error,
                                           opening_.links.channel(),
                                           first_window_tag(opening_.group, opening_.number));
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
    WindowRow{"host_relay", unsupported_here<device_unsupported_reason>, open<RelayOpening>},
    WindowRow{"nccl", unsupported_here<nccl_window_unsupported_reason>, open_nccl_window},
};

}  // namespace

std::span<const WindowRow> device_window_rows() { return kDeviceRows; }

}  // namespace altorch
