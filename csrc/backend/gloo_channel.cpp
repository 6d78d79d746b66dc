#include "backend/gloo_channel.h"

#include <unistd.h>

#include <algorithm>
#include <cstring>

namespace altorch::backend {
namespace {

constexpr std::chrono::seconds kFarewell{5};
// How long a cancelled message whose body is on its way may take to arrive before it is broken off.
constexpr std::chrono::seconds kGrace{2};
// One look takes no longer, though nothing arrives: the thread may have other groups to look after.
constexpr std::chrono::microseconds kSleep{200};

GlooTransferPtr* transfer_of(const Request& request) { return static_cast<GlooTransferPtr*>(request.extra); }

void attach(Request& request, GlooTransferPtr transfer) {
  request.extra = new GlooTransferPtr(std::move(transfer));
  request.handle = 1;
}

bool wait_until_done(const GlooTransfer& transfer, std::chrono::milliseconds patience) {
  const auto deadline = std::chrono::steady_clock::now() + patience;
  while (!transfer.done.load(std::memory_order_acquire)) {
    if (std::chrono::steady_clock::now() > deadline) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return true;
}

bool matches(const GlooTransfer& transfer, const GlooArrival& arrival) {
  return (transfer.peer == kAnySource || transfer.peer == arrival.peer) && transfer.tag == arrival.tag;
}

Error wrong_size(const GlooTransfer& transfer, const GlooArrival& arrival) {
  return Error(ErrorKind::kMismatch, "A message from rank " + std::to_string(arrival.peer) + " has " +
                                         std::to_string(arrival.bytes) + " bytes where this rank expects " +
                                         std::to_string(transfer.bytes) +
                                         ": the ranks disagree about the size or type of a tensor.");
}

}  // namespace

GlooChannel::GlooChannel(const c10::intrusive_ptr<c10d::Backend>& gloo, int rank,
                         const std::vector<int>& global_ranks)
    : rank_(rank), process_(getpid()), peers_(global_ranks.size()) {
  GlooListener& listener = *this;
  for (int other = 0; other < size(); ++other) {
    if (other == rank) continue;
    const auto index = static_cast<std::size_t>(other);
    peers_[index] = std::make_unique<GlooPeer>(gloo, other, global_ranks[index], listener);
  }
  for (const auto& each : peers_) {
    if (each) each->start();
  }
}

GlooChannel::~GlooChannel() {
  if (getpid() != process_) {  // forked: the threads stayed behind, with their locks in any state
    for (auto& each : peers_) static_cast<void>(each.release());
    return;
  }
  const auto deadline = std::chrono::steady_clock::now() + kFarewell;
  for (const auto& each : peers_) {
    if (each) each->flush(deadline);
  }
  for (const auto& each : peers_) {
    if (each) each->stop();
  }
}

void GlooChannel::send(const void* data, std::size_t bytes, int to, std::int64_t tag, Request& request) {
  request = Request{0, nullptr, bytes, to, /*is_receive=*/false, request.exact};
  if (to != rank_ && peer(to).send_now(data, bytes, tag)) return;
  auto transfer = std::make_shared<GlooTransfer>();
  transfer->data = const_cast<void*>(data);
  transfer->bytes = bytes;
  transfer->peer = to;
  transfer->tag = tag;
  attach(request, transfer);
  if (to == rank_) return send_to_self(transfer);
  if (auto cause = peer(to).failure()) return transfer->finish(std::move(cause));
  peer(to).announce(transfer);
}

void GlooChannel::receive(void* data, std::size_t bytes, int from, std::int64_t tag, Request& request) {
  request = Request{0, nullptr, bytes, from, /*is_receive=*/true, request.exact};
  auto transfer = std::make_shared<GlooTransfer>();
  transfer->data = data;
  transfer->bytes = bytes;
  transfer->peer = from;
  transfer->tag = tag;
  transfer->is_receive = true;
  transfer->exact = request.exact;
  attach(request, transfer);
  std::optional<Unexpected> found;
  {
    const std::lock_guard lock(mutex_);
    const auto match = std::find_if(unexpected_.begin(), unexpected_.end(),
                                    [&](const Unexpected& each) { return matches(*transfer, each.arrival); });
    if (match == unexpected_.end()) {
      if (auto cause = failure(from)) return transfer->finish(std::move(cause));
      awaited_.push_back(std::move(transfer));
      return;
    }
    found = std::move(*match);
    unexpected_.erase(match);
    transfer->peer = found->arrival.peer;
  }
  deliver(transfer, found->arrival);
  if (found->sender) found->sender->finish();
}

// The bytes stay where they are until they are asked for.
void GlooChannel::send_to_self(const GlooTransferPtr& transfer) {
  const GlooArrival arrival{rank_, transfer->tag, transfer->bytes, 0,
                            static_cast<const std::byte*>(transfer->data)};
  GlooTransferPtr receiver;
  {
    const std::lock_guard lock(mutex_);
    const auto match = std::find_if(awaited_.begin(), awaited_.end(),
                                    [&](const GlooTransferPtr& each) { return matches(*each, arrival); });
    if (match == awaited_.end()) {
      unexpected_.push_back({arrival, nullptr, transfer});
      return;
    }
    receiver = std::move(*match);
    awaited_.erase(match);
    receiver->peer = rank_;
  }
  deliver(receiver, arrival);
  transfer->finish();
}

void GlooChannel::arrived(const GlooArrival& arrival) {
  GlooTransferPtr transfer;
  {
    const std::lock_guard lock(mutex_);
    const auto match = std::find_if(awaited_.begin(), awaited_.end(),
                                    [&](const GlooTransferPtr& each) { return matches(*each, arrival); });
    if (match == awaited_.end()) {
      Unexpected kept{arrival, nullptr, nullptr};
      if (arrival.id == 0 && arrival.bytes > 0) {
        kept.payload.reset(new std::byte[arrival.bytes]);
        std::memcpy(kept.payload.get(), arrival.payload, arrival.bytes);
        kept.arrival.payload = kept.payload.get();
      }
      unexpected_.push_back(std::move(kept));
      return;
    }
    transfer = std::move(*match);
    awaited_.erase(match);
    transfer->peer = arrival.peer;
  }
  deliver(transfer, arrival);
}

void GlooChannel::deliver(const GlooTransferPtr& transfer, const GlooArrival& arrival) {
  if (arrival.id == 0 && arrival.peer != rank_) peer(arrival.peer).consumed(arrival.bytes);
  const bool fits = arrival.bytes == transfer->bytes || (arrival.bytes < transfer->bytes && !transfer->exact);
  if (!fits) {
    if (arrival.id != 0) peer(arrival.peer).refuse(arrival);
    return transfer->finish(wrong_size(*transfer, arrival));
  }
  if (arrival.id != 0) return peer(arrival.peer).accept(transfer, arrival);
  if (arrival.bytes > 0) std::memcpy(transfer->data, arrival.payload, arrival.bytes);
  transfer->finish();
}

std::optional<Error> GlooChannel::failure(int from) const {
  if (from == rank_) return std::nullopt;
  if (from != kAnySource) return peers_[static_cast<std::size_t>(from)]->failure();
  std::optional<Error> cause;
  for (const auto& each : peers_) {
    if (!each) continue;
    cause = each->failure();
    if (!cause) return std::nullopt;  // somebody may still send
  }
  return cause;
}

void GlooChannel::lost(int) {
  const std::lock_guard lock(mutex_);
  std::erase_if(awaited_, [&](const GlooTransferPtr& transfer) {
    auto cause = failure(transfer->peer);
    if (!cause) return false;
    transfer->finish(std::move(cause));
    return true;
  });
}

// Whoever moves several requests on tests them in turn; of those, only one may put the thread to sleep, and
// only when nothing at all has happened since it was tested before.
void GlooChannel::sleep_over(const GlooTransfer* pending, std::uint64_t seen) {
  const GlooTransfer* nobody = nullptr;
  if (waited_for_.compare_exchange_strong(nobody, pending) || nobody != pending) return;
  if (last_seen_.exchange(seen) == seen) GlooEvent::instance().wait(seen, kSleep);
}

void GlooChannel::release(Request& request) {
  const GlooTransfer* transfer = transfer_of(request)->get();
  waited_for_.compare_exchange_strong(transfer, nullptr);
  delete transfer_of(request);
  request.extra = nullptr;
  request.handle = 0;
}

State GlooChannel::test(std::span<Request> requests, std::optional<Error>& error) {
  const GlooTransfer* pending = nullptr;
  const std::uint64_t seen = GlooEvent::instance().count();
  for (Request& request : requests) {
    if (request.handle == 0) continue;
    GlooTransfer& transfer = **transfer_of(request);
    if (!transfer.done.load(std::memory_order_acquire)) {
      if (!pending || waited_for_.load() == &transfer) pending = &transfer;
      continue;
    }
    error = std::move(transfer.error);
    if (request.is_receive) request.peer = transfer.peer;
    release(request);
    if (error) return State::kFailed;
  }
  if (!pending) return State::kDone;
  sleep_over(pending, seen);
  return State::kPending;
}

bool GlooChannel::withdraw(const GlooTransferPtr& transfer) {
  if (!transfer->is_receive && transfer->peer != rank_) return peer(transfer->peer).withdraw(transfer);
  const std::lock_guard lock(mutex_);
  if (!transfer->is_receive) {
    return std::erase_if(unexpected_, [&](const Unexpected& each) { return each.sender == transfer; }) > 0;
  }
  return std::erase(awaited_, transfer) > 0;
}

bool GlooChannel::cancel(std::span<Request> requests) {
  bool all_free = true;
  for (Request& request : requests) {
    if (request.handle == 0) continue;
    const GlooTransferPtr transfer = *transfer_of(request);
    bool is_free = withdraw(transfer) || wait_until_done(*transfer, kGrace);
    if (!is_free && transfer->peer != rank_) {
      peer(transfer->peer).break_off(transfer);
      is_free = wait_until_done(*transfer, kGrace);
    }
    if (is_free) release(request);
    all_free = all_free && is_free;
  }
  return all_free;
}

}  // namespace altorch::backend
