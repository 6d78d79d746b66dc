#include "transports/shm/channel.h"

#include <algorithm>
#include <cstring>
#include <string>

namespace altorch {

using shm::Frame;
using shm::Offer;

ShmChannel::ShmChannel(std::shared_ptr<std::byte> memory, shm::Mail mail, std::vector<shm::Process> processes)
    : memory_(std::move(memory)),
      processes_(std::move(processes)),
      mail_(std::move(mail)),
      unsent_(static_cast<std::size_t>(mail_.size())),
      arriving_(static_cast<std::size_t>(mail_.size())) {}

ShmChannel::Pending& ShmChannel::open(Request& request) {
  if (unused_.empty()) {
    pending_.emplace_back();
    unused_.push_back(pending_.size());
  }
  request.handle = unused_.back();
  unused_.pop_back();
  return pending(request) = Pending();
}

void ShmChannel::close(Request& request) {
  unused_.push_back(request.handle);
  request.handle = 0;
}

void ShmChannel::send(const void* data, std::size_t bytes, int peer, std::int64_t tag, Request& request) {
  const std::lock_guard lock(mutex_);
  request.is_receive = false;
  request.peer = peer;
  request.bytes = bytes;
  auto& queue = unsent_[static_cast<std::size_t>(peer)];
  if (queue.empty() && bytes <= mail_.largest() &&
      mail_.put(peer, {.tag = tag, .bytes = bytes, .part = bytes}, data)) {
    request.handle = 0;
    return;
  }
  Pending& message = open(request);
  message.peer = peer;
  message.tag = tag;
  message.from = data;
  message.bytes = bytes;
  if (!queue.empty() || !post(message)) queue.push_back(request.handle);
  if (message.offer != 0) offered_.push_back(request.handle);
}

// Into the ring; false when that has no room for all of it, or the table none.
bool ShmChannel::post(Pending& message) {
  if (message.given_up) return mail_.put(message.peer, {.tag = message.tag, .given_up = 1}, nullptr);
  const bool offers = message.bytes > mail_.largest() && !processes_.empty();
  return offers ? post_offer(message) : post_parts(message);
}

bool ShmChannel::post_parts(Pending& message) {
  do {
    const std::size_t part = std::min(message.bytes - message.sent, mail_.largest());
    const Frame frame{.tag = message.tag, .bytes = message.bytes, .part = part};
    if (!mail_.put(message.peer, frame, static_cast<const std::byte*>(message.from) + message.sent))
      return false;
    message.sent += part;
  } while (message.sent < message.bytes);
  return message.done = true;
}

bool ShmChannel::post_offer(Pending& message) {
  const std::uint64_t number = offers_ + 1;
  auto& state = mail_.offer(rank(), number);
  const std::uint64_t before = state.load(std::memory_order_acquire);
  // 0: the place was never used.
  const bool is_free = before == 0 || (before & 3) == Offer::kTaken || (before & 3) == Offer::kWithdrawn;
  if (!is_free) return false;
  state.store(Offer::word(number, Offer::kOpen), std::memory_order_release);
  const Frame frame{.tag = message.tag,
                    .bytes = message.bytes,
                    .address = reinterpret_cast<std::uint64_t>(message.from),
                    .offer = number};
  if (!mail_.put(message.peer, frame, nullptr)) {
    state.store(Offer::word(number, Offer::kWithdrawn), std::memory_order_release);
    return false;
  }
  offers_ = number;
  message.offer = number;
  return true;
}

void ShmChannel::receive(void* data, std::size_t bytes, int peer, std::int64_t tag, Request& request) {
  const std::lock_guard lock(mutex_);
  request.is_receive = true;
  request.peer = peer;
  request.bytes = bytes;
  Pending& wanted = open(request);
  wanted.is_receive = true;
  wanted.exact = request.exact;
  wanted.peer = peer;
  wanted.tag = tag;
  wanted.to = data;
  wanted.bytes = bytes;
  const auto here = std::find_if(early_.begin(), early_.end(), [&](const Early& message) {
    return message.tag == tag && (peer == kAnySource || peer == message.peer);
  });
  if (here == early_.end()) {
    receives_.push_back(request.handle);
    return;
  }
  if (Arriving& whole = arriving_[static_cast<std::size_t>(here->peer)]; whole.early == &*here) {
    std::memcpy(data, here->bytes.data(), std::min(whole.got, bytes));
    whole.early = nullptr;
    whole.receive = request.handle;
  } else {
    deliver(wanted, here->peer, here->frame, here->bytes.data());
    if (!wanted.done) receives_.push_back(request.handle);  // it was withdrawn
  }
  early_.erase(here);
}

std::optional<Error> ShmChannel::copy_offered(Pending& receive, int peer, const Frame& frame) {
  auto& state = mail_.offer(peer, frame.offer);
  const std::size_t bytes = std::min<std::size_t>(frame.bytes, receive.bytes);
  const bool copied = processes_[static_cast<std::size_t>(peer)].read(frame.address, receive.to, bytes);
  std::uint64_t word = Offer::word(frame.offer, Offer::kBeingCopied);
  const bool stood =
      state.compare_exchange_strong(word, Offer::word(frame.offer, Offer::kTaken), std::memory_order_acq_rel);
  if (copied && stood) return std::nullopt;
  if (!stood)
    return Error(ErrorKind::kTransport, "rank " + std::to_string(peer) +
                                            " of the group gave up its message while it was being copied");
  return Error(ErrorKind::kTransport,
               "the memory of rank " + std::to_string(peer) +
                   " of the group could not be read: its process has ended, or the tensor "
                   "that it sends is gone");
}

void ShmChannel::deliver(Pending& receive, int peer, const Frame& frame, const void* data) {
  if (frame.offer != 0) {
    std::uint64_t open = Offer::word(frame.offer, Offer::kOpen);
    if (!mail_.offer(peer, frame.offer)
             .compare_exchange_strong(open, Offer::word(frame.offer, Offer::kBeingCopied),
                                      std::memory_order_acq_rel))
      return;  // withdrawn
    receive.error = copy_offered(receive, peer, frame);
  } else if (frame.bytes > 0) {
    std::memcpy(receive.to, data, std::min<std::size_t>(frame.bytes, receive.bytes));
  }
  conclude(receive, peer, frame.bytes);
}

void ShmChannel::conclude(Pending& receive, int peer, std::size_t bytes) {
  receive.done = true;
  receive.peer = peer;
  const bool fits = bytes == receive.bytes || (bytes < receive.bytes && !receive.exact);
  if (fits || receive.error) return;
  receive.error =
      Error(ErrorKind::kMismatch, "A message from rank " + std::to_string(peer) + " of the group has " +
                                      std::to_string(bytes) + " bytes where this rank expects " +
                                      std::to_string(receive.bytes) +
                                      ": the ranks disagree about the size or type of a tensor.");
}

ShmChannel::Handles::iterator ShmChannel::wanted(int peer, std::int64_t tag) {
  return std::find_if(receives_.begin(), receives_.end(), [&](std::uintptr_t handle) {
    const Pending& receive = pending_[handle - 1];
    return receive.tag == tag && (receive.peer == kAnySource || receive.peer == peer);
  });
}

void ShmChannel::take_mail(int peer) {
  while (const Frame* frame = mail_.oldest(peer)) {
    const void* data = shm::Mail::data_of(*frame);
    if (frame->given_up || (!frame->offer && frame->part < frame->bytes)) {
      take_part(peer, *frame, data);
    } else if (const auto receive = wanted(peer, frame->tag); receive != receives_.end()) {
      Pending& message = pending_[*receive - 1];
      deliver(message, peer, *frame, data);
      if (message.done) receives_.erase(receive);
    } else {
      const auto* const begin = static_cast<const std::byte*>(data);
      early_.push_back({peer, frame->tag, *frame, {begin, begin + frame->part}});
    }
    mail_.drop(peer, *frame);
  }
}

void ShmChannel::take_part(int peer, const Frame& frame, const void* data) {
  Arriving& whole = arriving_[static_cast<std::size_t>(peer)];
  if (frame.given_up) {
    if (whole.receive) {
      Pending& receive = pending_[whole.receive - 1];
      receive.error = Error(ErrorKind::kTransport,
                            "rank " + std::to_string(peer) + " of the group gave up its message half-way");
      conclude(receive, peer, receive.bytes);
    } else if (whole.early) {
      std::erase_if(early_, [&](const Early& message) { return &message == whole.early; });
    }
    whole = {};
    return;
  }
  if (whole.got == 0) {
    if (const auto receive = wanted(peer, frame.tag); receive != receives_.end()) {
      whole.receive = *receive;
      receives_.erase(receive);
    } else {
      whole.early = &early_.emplace_back(Early{peer, frame.tag, frame, std::vector<std::byte>(frame.bytes)});
    }
  }
  void* to = whole.early ? whole.early->bytes.data() : nullptr;
  std::size_t room = frame.bytes;
  if (whole.receive) {
    to = pending_[whole.receive - 1].to;
    room = pending_[whole.receive - 1].bytes;
  }
  if (to && whole.got < room)
    std::memcpy(static_cast<std::byte*>(to) + whole.got, data,
                std::min<std::size_t>(frame.part, room - whole.got));
  whole.got += frame.part;
  if (whole.got < frame.bytes) return;
  if (whole.receive) conclude(pending_[whole.receive - 1], peer, frame.bytes);
  whole = {};
}

void ShmChannel::progress() {
  for (int peer = 0; peer < size(); ++peer) {
    take_mail(peer);
    auto& queue = unsent_[static_cast<std::size_t>(peer)];
    while (!queue.empty()) {
      const std::uintptr_t handle = queue.front();
      Pending& message = pending_[handle - 1];
      if (!post(message)) break;
      queue.pop_front();
      if (message.offer != 0) offered_.push_back(handle);
      if (message.given_up) unused_.push_back(handle);
    }
  }
  std::erase_if(offered_, [&](std::uintptr_t handle) {
    Pending& message = pending_[handle - 1];
    const auto state = mail_.offer(rank(), message.offer).load(std::memory_order_acquire);
    return message.done = state == Offer::word(message.offer, Offer::kTaken);
  });
}

State ShmChannel::test(std::span<Request> requests, std::optional<Error>& error) {
  const std::lock_guard lock(mutex_);
  progress();
  State state = State::kDone;
  for (Request& request : requests) {
    if (request.handle == 0) continue;
    const Pending& each = pending(request);
    if (!each.done) {
      state = State::kPending;
      continue;
    }
    request.peer = each.peer;
    if (each.error) error = each.error;
    close(request);
  }
  return error ? State::kFailed : state;
}

bool ShmChannel::cancel(std::span<Request> requests) {
  const std::lock_guard lock(mutex_);
  for (Request& request : requests) {
    if (request.handle == 0) continue;
    Pending& each = pending(request);
    if (!each.is_receive && each.sent > 0 && !each.done) {
      each.given_up = true;  // it keeps its place, so that the peer is told
      request.handle = 0;
      continue;
    }
    if (each.offer != 0 && !each.done) {
      // Who is copying it just now sees that when it is through.
      mail_.offer(rank(), each.offer)
          .store(Offer::word(each.offer, Offer::kWithdrawn), std::memory_order_release);
      std::erase(offered_, request.handle);
    }
    receives_.remove(request.handle);
    for (Arriving& whole : arriving_) {
      if (whole.receive == request.handle) whole.receive = 0;
    }
    unsent_[static_cast<std::size_t>(std::max(each.peer, 0))].remove(request.handle);
    close(request);
  }
  return true;
}

}  // namespace altorch
