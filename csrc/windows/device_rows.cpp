// SPDX-License-Identifier: BSD-3-Clause
// The ways to memory on the GPUs of other ranks.
#include <array>

#include "windows/nccl_window.h"
#include "windows/nvshmem_window.h"
#include "windows/peer_opening.h"
#include "windows/staged_opening.h"

namespace altorch {
namespace {

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
    WindowRow{"nvshmem", unsupported_here<nvshmem_window_unsupported_reason>, open_nvshmem_window},
};

}  // namespace

std::span<const WindowRow> device_window_rows() { return kDeviceRows; }

}  // namespace altorch
