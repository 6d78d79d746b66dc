// SPDX-License-Identifier: BSD-3-Clause
#include "windows/nccl_window.h"

#include <algorithm>

#include "windows/peer_opening.h"

namespace altorch {

NcclWindow::NcclWindow(Memory memory, int rank, const Registered& own, OnError on_error, bool co_resident,
                       std::vector<std::string> no_atomics, std::unique_ptr<nccl::NcclComm> communicator)
    : DeviceWindow(std::move(memory), rank, own, on_error, co_resident, std::move(no_atomics)),
      communicator_(std::move(communicator)) {}

bool NcclWindow::carries(const WindowCall& call) const {
  if (call.slot != kSlot || call.peer == rank_) return false;
  if (!call.captured) return true;
  throw Error(
      ErrorKind::kUnsupported,
      "NCCL carries what is signalled in slot 0 of this window, and does not go into a CUDA graph; use "
      "another slot, or ALTORCH_ROUTE=window=peer");
}

// It reads nothing that is not registered, and signals with each put.
bool NcclWindow::is_one_put(const WindowCall& call) const {
  const auto* const from = static_cast<const std::byte*>(call.from);
  const std::byte* const own = memory_->of[static_cast<std::size_t>(rank_)].get();
  return call.access == Access::kPut && call.bytes() > 0 && call.span() == call.bytes() &&
         !std::less<>()(from, own) && !std::less<>()(own + own_.bytes, from + call.bytes());
}

State NcclWindow::begin(WindowCall& call, std::optional<Error>& error) {
  if (!carries(call)) return DeviceWindow::begin(call, error);
  if (is_one_put(call) || call.access == Access::kSignal) {
    if (has_left(call.peer)) {
      error = window_closed_by(call.peer);
      return State::kFailed;
    }
    const std::lock_guard lock(mutex_);
    remember(call, /*waits=*/false);
  } else {
    call.slot = kNoSlot;
    const State state = DeviceWindow::begin(call, error);
    call.slot = kSlot;
    if (state != State::kDone) return state;
  }
  if (is_one_put(call))
    communicator_->put_signal(call.from, call.bytes(), call.peer, map(rank_), call.offset, call.stream);
  else
    communicator_->signal(call.peer, call.stream);
  return State::kDone;
}

void NcclWindow::wait(const WindowCall& call) {
  if (!carries(call)) return DeviceWindow::wait(call);
  {
    const std::lock_guard lock(mutex_);
    remember(call, /*waits=*/true);
  }
  communicator_->wait_signal(call.peer, call.stream);
  const std::lock_guard lock(mutex_);
  end_wait(call);
}

// What NCCL has streams wait for ends with its communicator only.
void NcclWindow::end() {
  DeviceWindow::end();
  if (!agreed_) communicator_->abort();
}

bool NcclWindow::close(bool agreed) {
  agreed_ = agreed;
  const bool past = DeviceWindow::close(agreed);
  if (agreed && past) return communicator_->leave();
  communicator_->abort();
  return past;
}

namespace {

class NcclOpening : public PeerOpening {
 public:
  using PeerOpening::PeerOpening;

 private:
  std::string own_unsupported_reason() const override {
    std::string found = PeerOpening::own_unsupported_reason();
    if (!found.empty()) return found;
    if (const auto why = nccl::NcclComm::one_sided_unsupported_reason()) return *why;
    if (reinterpret_cast<std::uintptr_t>(opening_.memory) % nccl::kWindowAlignment != 0)
      return "the tensor does not begin at a multiple of " + std::to_string(nccl::kWindowAlignment) +
             " bytes, as NCCL wants it";
    return "";
  }

  std::string unsupported_among() const override {
    if (world_.same_gpu)
      return "ranks " + std::to_string(world_.same_gpu->first) + " and " +
             std::to_string(world_.same_gpu->second) + " share one GPU, which NCCL refuses";
    const auto& all = opening_.registered;
    const auto is_other = [&](const Registered& each) {
      return each.bytes == 0 || each.bytes != all[0].bytes;
    };
    if (std::any_of(all.begin(), all.end(), is_other))
      return "the ranks' tensors are empty, or not of one size, as NCCL wants them";
    return "";
  }

  std::unique_ptr<RemoteMemory> make(DeviceWindow::Memory memory) override {
    KeyValueStore& store = opening_.store;
    auto communicator =
        std::make_unique<nccl::NcclComm>(store, "communicator", gpu_.device, rank_, size_, opening_.timeout,
                                         nccl::Knobs{}, [&store] { store.check_peers(); });
    communicator->add_buffer(opening_.memory, opening_.own.bytes, /*symmetric=*/true);
    return std::make_unique<NcclWindow>(std::move(memory), rank_, opening_.own, gpu_.on_error,
                                        world_.co_resident(), atomics_unsupported_reasons(),
                                        std::move(communicator));
  }
};

}  // namespace

std::string nccl_window_unsupported_reason(const GpuSource& gpus, int device) {
  const std::string found = mapping_unsupported_reason(gpus, device);
  return found.empty() ? nccl::NcclComm::one_sided_unsupported_reason().value_or("") : found;
}

std::unique_ptr<RemoteMemory> open_nccl_window(const WindowOpening& opening,
                                               std::string& unsupported_reason) {
  return NcclOpening(opening).open(unsupported_reason);
}

}  // namespace altorch
