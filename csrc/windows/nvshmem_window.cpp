// SPDX-License-Identifier: BSD-3-Clause
#include "windows/nvshmem_window.h"

#include <algorithm>

#include "base/env.h"
#include "base/fields.h"
#include "base/number.h"
#include "rendezvous/store_allgather.h"
#include "windows/staged_opening.h"

namespace altorch {
namespace {

using nvshmem::NvshmemWorld;

const std::string kNvshmemPurpose = "to open a window over NVSHMEM";
// More than any count of signals; a signal that is added to it makes no difference.
constexpr std::int64_t kReleased = std::int64_t{1} << 62;

// Request slots of this rank to itself. No rank makes such requests, so end() and signal() use
// them.
enum OwnRequest : std::uint32_t { kRelease = 2, kDiscarded };

std::size_t place_of(int rank, int slot) {
  return static_cast<std::size_t>(rank) * kSignalSlots + static_cast<std::size_t>(slot);
}

Error no_graphs() {
  return Error(
      ErrorKind::kUnsupported,
      "NVSHMEM carries this window, and does not go into a CUDA graph; use ALTORCH_ROUTE=window=peer");
}

}  // namespace

void NvshmemWindow::set_symmetric(Symmetric symmetric) {
  symmetric_ = std::move(symmetric);
  awaited_.resize(signal_words(ranks_));
  relayed_.resize(static_cast<std::size_t>(ranks_));
  symmetric_.world->call([&](const nvshmem::Table& nvshmem) {
    for (int rank = 0; rank < ranks_; ++rank)
      mapped_.push_back(static_cast<std::uint64_t*>(
          nvshmem.mapped(symmetric_.words[static_cast<std::size_t>(rank)], rank)));
    try_out(nvshmem);
  });
}

// Calls each function once, on signals of this rank for itself, which are unused. CUDA loads a
// kernel at its first launch, and that may wait for all work on the GPU.
void NvshmemWindow::try_out(const nvshmem::Table& nvshmem) const {
  std::uint64_t* const own = symmetric_.signals + place_of(rank_, 0);
  nvshmem.put(own, own + 1, sizeof *own, rank_, own_stream_);
  nvshmem.get(own, own + 1, sizeof *own, rank_, own_stream_);
  nvshmem.put_signal(own, own + 1, sizeof *own, own + 2, 0, nvshmem::kSignalAdd, rank_, own_stream_);
  nvshmem.signal(own, 0, nvshmem::kSignalAdd, rank_, own_stream_);
  nvshmem.wait_signal(own, nvshmem::kGreaterOrEqual, 0, own_stream_);
  nvshmem.quiet(own_stream_);
}

// Over a network it reads and writes only what is registered.
bool NvshmemWindow::carries(const WindowCall& call) const {
  if (call.access == Access::kSignal) return true;
  if (call.access != Access::kPut && call.access != Access::kGet) return false;
  if (call.bytes() == 0 || mapped_[static_cast<std::size_t>(call.peer)]) return true;
  const void* const own = call.access == Access::kPut ? call.from : call.into;
  const auto* const block = static_cast<const std::byte*>(own);
  const std::byte* const memory = memory_->of[static_cast<std::size_t>(rank_)].get();
  return !std::less<>()(block, memory) && !std::less<>()(memory + own_.bytes, block + call.bytes());
}

State NvshmemWindow::begin(WindowCall& call, std::optional<Error>& error) {
  if (call.peer == rank_) return RelayedWindow::begin(call, error);
  if (call.captured) throw no_graphs();
  if (!carries(call)) return relay(call, [&] { return RelayedWindow::begin(call, error); });
  if (has_left(call.peer)) {
    error = window_closed_by(call.peer);
    return State::kFailed;
  }
  const std::lock_guard lock(mutex_);
  remember(call, /*waits=*/false);
  move(call);
  return State::kDone;
}

State NvshmemWindow::test(WindowCall& call, std::optional<Error>& error) {
  if (call.peer == rank_) return RelayedWindow::test(call, error);
  return relay(call, [&] { return RelayedWindow::test(call, error); });
}

template <class Act>
State NvshmemWindow::relay(WindowCall& call, const Act& act) {
  const int slot = std::exchange(call.slot, kNoSlot);
  const State state = act();
  call.slot = slot;
  if (state != State::kDone) return state;
  const std::lock_guard lock(mutex_);
  if (call.held_at != kNoSlot)
    relayed_[static_cast<std::size_t>(call.peer)][static_cast<std::size_t>(call.held_at)] = call.held_until;
  if (slot != kNoSlot) signal(call);
  return state;
}

bool NvshmemWindow::is_relaying(int rank) const {
  const auto& requests = relayed_[static_cast<std::size_t>(rank)];
  for (int lane = 0; lane < StagedBoard::kLanes; ++lane) {
    const std::uint32_t passed = over(rank, kSignalSlots + lane);
    if (static_cast<std::int32_t>(passed - requests[static_cast<std::size_t>(lane)]) < 0) return true;
  }
  return false;
}

void NvshmemWindow::signal(const WindowCall& call) {
  const auto peer = static_cast<std::size_t>(call.peer);
  const std::size_t place = place_of(rank_, call.slot);
  if (!is_relaying(call.peer) || !mapped_[peer] || !symmetric_.no_atomics[peer].empty())
    return symmetric_.world->call([&](const nvshmem::Table& nvshmem) {
      nvshmem.signal(symmetric_.words[peer] + place, 1, nvshmem::kSignalAdd, call.peer, call.stream);
    });
  StagedBoard::Request& unused = own_request(kDiscarded);
  WindowNumber job;
  job.at = mapped_[peer] + place;
  job.operand = job.adds = 1;
  job.found = &unused.found;
  job.answered = &unused.counted;
  job.ended = aborted();
  memory_->device->change_number(job, call.stream);
}

void NvshmemWindow::move(const WindowCall& call) {
  const auto peer = static_cast<std::size_t>(call.peer);
  std::byte* const theirs = symmetric_.memory + symmetric_.offsets[peer] + call.offset;
  const bool moves = call.access != Access::kSignal && call.bytes() > 0;
  // What is registered has a second address, which NVSHMEM knows.
  const auto known = [&](const void* block) {
    const auto address = reinterpret_cast<std::uintptr_t>(block);
    const std::uintptr_t shift = mapped_[peer] ? 0
                                               : reinterpret_cast<std::uintptr_t>(symmetric_.memory) -
                                                     reinterpret_cast<std::uintptr_t>(symmetric_.allocation);
    return reinterpret_cast<std::byte*>(address + shift);
  };
  const bool puts = moves && call.access == Access::kPut;
  const bool at_once = puts && call.rows == 1 && call.slot != kNoSlot && !is_relaying(call.peer);
  symmetric_.world->call([&](const nvshmem::Table& nvshmem) {
    if (at_once)
      nvshmem.put_signal(theirs, known(call.from), call.row_bytes,
                         symmetric_.words[peer] + place_of(rank_, call.slot), 1, nvshmem::kSignalAdd,
                         call.peer, call.stream);
    for (std::size_t row = 0; moves && !at_once && row < call.rows; ++row) {
      std::byte* const there = theirs + row * call.stride;
      if (puts)
        nvshmem.put(there, known(call.from) + row * call.row_bytes, call.row_bytes, call.peer, call.stream);
      else
        nvshmem.get(known(call.into) + row * call.row_bytes, there, call.row_bytes, call.peer, call.stream);
    }
    if (puts) nvshmem.quiet(call.stream);
  });
  if (call.slot != kNoSlot && !at_once) signal(call);
}

void NvshmemWindow::wait(const WindowCall& call) {
  if (call.peer == rank_) return RelayedWindow::wait(call);
  if (call.captured) throw no_graphs();
  const std::lock_guard lock(mutex_);
  remember(call, /*waits=*/true);
  const std::size_t at = place_of(call.peer, call.slot);
  symmetric_.world->call([&](const nvshmem::Table& nvshmem) {
    nvshmem.wait_signal(symmetric_.signals + at, nvshmem::kGreaterOrEqual, ++awaited_[at], call.stream);
  });
  end_wait(call);
}

StagedBoard::Request& NvshmemWindow::own_request(std::uint32_t number) const {
  return staged_board().request(rank_, 0, rank_, number);
}

void NvshmemWindow::end() {
  RelayedWindow::end();
  std::int64_t& released = own_request(kRelease).found;
  std::atomic_ref(released).store(kReleased);
  WindowMove job;
  job.from = &released;
  job.to = symmetric_.signals;
  job.row_bytes = job.to_stride = sizeof released;
  job.rows = static_cast<std::int64_t>(signal_words(ranks_));
  try {
    if (symmetric_.signals) enqueue_beside(job);
  } catch (const Error&) {  // the device is gone, or the process ends
  }
}

// NVSHMEM keeps the memory. To unregister it would be collective, and each rank alone finds whether
// its streams are past the window.
bool NvshmemWindow::close(bool agreed) {
  RelayedWindow::close(agreed);
  return false;
}

namespace {

class NvshmemOpening : public RelayOpening {
 public:
  explicit NvshmemOpening(const WindowOpening& opening)
      : RelayOpening(opening), nvshmem_(NvshmemWorld::instance()) {}

  std::unique_ptr<RemoteMemory> open(std::string& unsupported_reason) {
    auto made = RelayOpening::open(unsupported_reason);
    if (!made) return nullptr;
    try {
      if (connect(static_cast<NvshmemWindow&>(*made), unsupported_reason)) return made;
    } catch (const Error& error) {
      nvshmem_.mark_unusable(error.what());
      throw;
    }
    nvshmem_.mark_unusable(unsupported_reason);
    return nullptr;
  }

 private:
  // Each step is collective in NVSHMEM, so that no rank begins it before all of them can.
  bool connect(NvshmemWindow& window, std::string& unsupported_reason) {
    const auto deadline = std::min(opening_.timeout, seconds_setting("ALTORCH_BOOTSTRAP_SECONDS"));
    const auto check_peers = [this] { opening_.store.check_peers(); };
    NvshmemWindow::Symmetric made;
    std::size_t begin = 0;
    const auto join = [&] { nvshmem_.join(id_, gpu_.device, rank_, size_, deadline, check_peers); };
    const auto add = [&] {
      made.memory = nvshmem_.add_buffer(allocation_->data(), allocation_->size(), deadline, check_peers);
      begin = nvshmem_.reserve_signals(NvshmemWindow::signal_words(size_));
    };
    if (!attempt("joined", join, unsupported_reason) || !attempt("registered", add, unsupported_reason))
      return false;
    for (const std::string& text : store_allgather(opening_.store, "signals", rank_, size_, opening_.timeout,
                                                   kNvshmemPurpose, std::to_string(begin)))
      made.words.push_back(nvshmem_.signals(number_from<std::size_t>(text, "where its signals begin")));
    for (const DeviceHandle& card : cards_) made.offsets.push_back(card.shareable.offset);
    made.no_atomics = atomics_unsupported_reasons();
    made.world = &nvshmem_;
    made.allocation = allocation_->data();
    made.signals = nvshmem_.signals(begin);
    return attempt(
        "tried", [&] { window.set_symmetric(std::move(made)); }, unsupported_reason);
  }

  std::unique_ptr<RemoteMemory> make(DeviceWindow::Memory memory) const override {
    return std::make_unique<NvshmemWindow>(std::move(memory), rank_, opening_.own, gpu_.on_error,
                                           opening_.links.channel(),
                                           first_window_tag(opening_.group, opening_.number));
  }

  bool exchange(std::string& unsupported_reason) override {
    const std::string own_reason = own_unsupported_reason();
    MappedPart part;
    if (allocation_)
      part = {allocation_->size(), static_cast<std::size_t>(opening_.memory - allocation_->data())};
    if (!exchange_cards(own_reason, part, unsupported_reason)) return false;
    unsupported_reason = unsupported_among();
    return unsupported_reason.empty();
  }

  std::string own_unsupported_reason() {
    if (size_ == 1) return "there is no other rank";
    std::string found = device_unsupported_reason(gpu_.gpus, gpu_.device);
    if (found.empty()) found = nvshmem_.unsupported_reason(rank_, size_, NvshmemWindow::signal_words(size_));
    if (!found.empty()) return found;
    if (opening_.own.bytes > 0 && gpu_.gpus.allocation)
      allocation_ = gpu_.gpus.allocation(opening_.memory, opening_.own.bytes);
    const std::size_t granularity = nvshmem_.granularity();
    const auto is_whole = [&](std::uintptr_t number) { return number % granularity == 0; };
    if (!allocation_ || !is_whole(allocation_->size()) ||
        !is_whole(reinterpret_cast<std::uintptr_t>(allocation_->data())))
      return "the tensor does not lie in one allocation that NVSHMEM can register, of a multiple of " +
             std::to_string(granularity) +
             " bytes; allocate it from torch.cuda.MemPool(backend.mem_allocator), see docs/windows.md, "
             "NVSHMEM";
    try {
      id_ = nvshmem_.id();
      is_new_ = id_.empty();
      if (is_new_ && rank_ == 0) id_ = nvshmem_.make_id();
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  }

  // The same on all ranks. NVSHMEM refuses nothing of this by itself: it would hang, or end the
  // process.
  std::string unsupported_among() {
    if (!world_.co_resident())
      return "ranks " + std::to_string(world_.same_gpu->first) + " and " +
             std::to_string(world_.same_gpu->second) +
             " share one GPU, which NVSHMEM serves with the Multi-Process Service (MPS) only";
    for (std::size_t rank = 0; rank < cards_.size(); ++rank) {
      if (!cards_[rank].shareable.holds(opening_.registered[rank].bytes)) throw outside(rank);
      if (cards_[rank].shareable.bytes != cards_[0].shareable.bytes)
        return "the allocations that hold the ranks' tensors are not of one size, as NVSHMEM wants them";
    }
    const Fields own = {is_new_ ? "" : id_, std::to_string(nvshmem_.registration_number(allocation_->data())),
                        std::to_string(nvshmem_.granularity()), id_};
    Fields first;
    for (const std::string& text : store_allgather(opening_.store, "world", rank_, size_, opening_.timeout,
                                                   kNvshmemPurpose, encode_fields(own))) {
      const Fields fields = decode_fields(text, own.size());
      if (first.empty()) first = fields;
      if (fields[0] != first[0]) return NvshmemWorld::kOtherGroup;
      if (fields[2] != first[2]) return "NVSHMEM_CUMEM_GRANULARITY differs between the ranks";
      if (fields[1] != first[1])
        return "the tensors of some ranks lie in an allocation that another window has registered, and "
               "those of others do not";
    }
    id_ = first[3];
    return "";
  }

  NvshmemWorld& nvshmem_;
  std::optional<std::span<std::byte>> allocation_;
  std::string id_;       // of NVSHMEM's world
  bool is_new_ = false;  // this process has not joined it yet
};

}  // namespace

std::string nvshmem_window_unsupported_reason(const GpuSource& gpus, int device) {
  const std::string found = device_unsupported_reason(gpus, device);
  return found.empty() ? NvshmemWorld::instance().unsupported_reason() : found;
}

std::unique_ptr<RemoteMemory> open_nvshmem_window(const WindowOpening& opening,
                                                  std::string& unsupported_reason) {
  return NvshmemOpening(opening).open(unsupported_reason);
}

}  // namespace altorch
