// SPDX-License-Identifier: BSD-3-Clause
#include "windows/staged_opening.h"

#include "base/rounding.h"
#include "windows/relayed_window.h"

namespace altorch {

std::unique_ptr<RemoteMemory> StagedOpening::open(std::string& unsupported_reason) {
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

bool StagedOpening::exchange(std::string& unsupported_reason) {
  return exchange_cards_on_node(device_unsupported_reason(gpu_.gpus, gpu_.device), {}, unsupported_reason);
}

std::unique_ptr<RemoteMemory> StagedOpening::make(DeviceWindow::Memory memory) const {
  return std::make_unique<DeviceWindow>(std::move(memory), rank_, opening_.own, gpu_.on_error,
                                        /*co_resident=*/false, std::vector<std::string>(cards_.size()));
}

bool RelayOpening::exchange(std::string& unsupported_reason) {
  return exchange_cards(device_unsupported_reason(gpu_.gpus, gpu_.device), {}, unsupported_reason);
}

std::unique_ptr<RemoteMemory> RelayOpening::make(DeviceWindow::Memory memory) const {
  return std::make_unique<RelayedWindow>(std::move(memory), rank_, opening_.own, gpu_.on_error,
                                         opening_.links.channel(),
                                         first_window_tag(opening_.group, opening_.number));
}

}  // namespace altorch
