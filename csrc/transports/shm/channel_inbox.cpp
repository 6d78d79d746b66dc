// SPDX-License-Identifier: BSD-3-Clause
// How messages come to a ShmChannel.
#include <algorithm>
#include <cstring>
#include <string>

#include "transports/shm/channel.h"

namespace altorch {

using shm::Frame;
using shm::Offer;

namespace {

// Copied from a sender's memory between two looks at everything else.
constexpr std::size_t kCopied = 4 << 20;

std::string named(int peer) { return "rank " + std::to_string(peer) + " of the group"; }

}  // namespace

ShmChannel::Handles::iterator ShmChannel::wanted(int peer, std::int64_t tag) {
  return std::find_if(receives_.begin(), receives_.end(), [&](Handle handle) {
    const Pending& receive = pending(handle);
    return receive.tag == tag && (receive.peer == kAnySource || receive.peer == peer);
  });
}

void ShmChannel::take_mail(int peer) {
  while (const auto received = mail_.oldest(peer)) {
    const auto& [frame, data] = *received;
    if (frame.offer && processes_.empty())
      throw Error(ErrorKind::kTransport, named(peer) + " offers its memory, which this rank may not read");
    if (frame.aborted || (!frame.offer && frame.part < frame.bytes)) {
      take_part(peer, frame, data);
    } else if (const auto receive = wanted(peer, frame.tag); receive == receives_.end()) {
      early_.push_back({peer, frame, {data, data + frame.part}});
    } else if (deliver(*receive, peer, frame, data)) {
      leave_queue(*receive);
    }
    mail_.drop(peer, frame);
  }
}

// Gives a receive the message that came before it, or puts it among the receives that wait.
void ShmChannel::take_early(Handle handle) {
  Pending& receive = pending(handle);
  const auto fits = [&](const Early& message) {
    return message.frame.tag == receive.tag && (receive.peer == kAnySource || receive.peer == message.peer);
  };
  while (true) {
    const auto message = std::find_if(early_.begin(), early_.end(), fits);
    if (message == early_.end()) {
      enter(receives_, handle);
      return;
    }
    bool taken = true;
    if (Arriving& whole = arriving_[static_cast<std::size_t>(message->peer)]; whole.early == &*message) {
      if (receive.bytes > 0)
        std::memcpy(receive.to, message->bytes.data(), std::min(whole.got, receive.bytes));
      whole.early = nullptr;
      whole.receive = handle;
    } else {
      taken = deliver(handle, message->peer, message->frame, message->bytes.data());
    }
    early_.erase(message);
    if (taken) return;
  }
}

bool ShmChannel::deliver(Handle handle, int peer, const Frame& frame, const void* data) {
  Pending& receive = pending(handle);
  if (frame.offer == 0) {
    const std::size_t bytes = std::min<std::size_t>(frame.bytes, receive.bytes);
    if (bytes > 0) std::memcpy(receive.to, data, bytes);
    conclude(receive, peer, frame);
    return true;
  }
  std::uint64_t open = Offer::word(frame.offer, Offer::kOpen);
  const auto copied = Offer::word(frame.offer, Offer::kBeingCopied);
  if (!state_of(peer, frame).compare_exchange_strong(open, copied, std::memory_order_acq_rel)) return false;
  receive.peer = peer;
  receive.offer = frame;
  copying_.push_back(handle);
  return true;
}

bool ShmChannel::copy_on(Pending& receive) {
  const Frame& frame = receive.offer;
  const std::size_t all = std::min<std::size_t>(frame.bytes, receive.bytes);
  const std::size_t bytes = std::min(kCopied, all - receive.moved);
  const bool copied = processes_[static_cast<std::size_t>(receive.peer)].read(
      frame.address + receive.moved, static_cast<std::byte*>(receive.to) + receive.moved, bytes);
  receive.moved += bytes;
  mail_.tell(
      rank());  // no peer announces the rest of the copy, or its end, for which another thread may be waiting
  if (copied && receive.moved < all) return false;
  if (!let_go(receive)) {
    receive.error =
        Error(ErrorKind::kTransport, named(receive.peer) + " aborted its message while it was being copied");
  } else if (!copied) {
    receive.error = shm::unreadable(receive.peer);
  }
  conclude(receive, receive.peer, frame);
  return true;
}

void ShmChannel::take_part(int peer, const Frame& frame, const std::byte* data) {
  Arriving& whole = arriving_[static_cast<std::size_t>(peer)];
  if (frame.aborted) {
    if (whole.receive) {
      Pending& receive = pending(whole.receive);
      receive.error = Error(ErrorKind::kTransport, named(peer) + " aborted its message half-way");
      conclude(receive, peer, frame);
    } else if (whole.early) {
      std::erase_if(early_, [&](const Early& message) { return &message == whole.early; });
    }
    whole = {};
    return;
  }
  const bool begins = whole.bytes == 0;
  const std::size_t missing = begins ? frame.bytes : whole.bytes - whole.got;
  if (frame.part == 0 || frame.part > missing || (!begins && frame.bytes != whole.bytes))
    throw Error(ErrorKind::kTransport, named(peer) + " wrote a part of no message into the shared memory");
  if (begins) {
    whole.bytes = frame.bytes;
    if (const auto receive = wanted(peer, frame.tag); receive != receives_.end()) {
      whole.receive = *receive;
      leave_queue(*receive);
    } else {
      whole.early = &early_.emplace_back(Early{peer, frame, {}});
    }
  }
  if (whole.early) {  // it grows by what has come, not by what it claims
    whole.early->bytes.insert(whole.early->bytes.end(), data, data + frame.part);
  } else if (whole.receive) {
    const Pending& receive = pending(whole.receive);
    if (whole.got < receive.bytes)
      std::memcpy(static_cast<std::byte*>(receive.to) + whole.got, data,
                  std::min<std::size_t>(frame.part, receive.bytes - whole.got));
  }
  whole.got += frame.part;
  if (whole.got < whole.bytes) return;
  if (whole.receive) conclude(pending(whole.receive), peer, frame);
  whole = {};
}

// All of it is there.
void ShmChannel::conclude(Pending& receive, int peer, const Frame& frame) {
  receive.done = true;
  receive.peer = peer;
  if (!receive.error)
    receive.error = unfit(frame.bytes, frame.type, receive.bytes, receive.type, receive.exact, named(peer));
}

// Its buffer is not written to any more.
void ShmChannel::forget(Handle handle) {
  leave_queue(handle);
  for (Arriving& whole : arriving_) {
    if (whole.receive == handle) whole.receive = 0;
  }
  if (std::erase(copying_, handle) > 0) let_go(pending(handle));
}

bool ShmChannel::let_go(const Pending& receive) {
  const std::uint64_t offer = receive.offer.offer;
  std::uint64_t word = Offer::word(offer, Offer::kBeingCopied);
  const bool held =
      state_of(receive.peer, receive.offer)
          .compare_exchange_strong(word, Offer::word(offer, Offer::kCopied), std::memory_order_acq_rel);
  mail_.tell(receive.peer);
  return held;
}

}  // namespace altorch
