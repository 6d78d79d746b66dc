// SPDX-License-Identifier: BSD-3-Clause
// How a ShmChannel's messages leave.
#include <algorithm>

#include "transports/shm/channel.h"

namespace altorch {

using shm::Frame;
using shm::Offer;

// Where the table is full, of offers to peers that are busy elsewhere, a message goes in parts, so
// that no peer waits for another.
bool ShmChannel::post(Pending& message) {
  if (message.aborted) return mail_.put(message.peer, {.tag = message.tag, .aborted = 1}, nullptr);
  const bool may_offer = !processes_.empty() && !free_places_.empty() && message.moved == 0;
  return message.bytes > mail_.largest() && may_offer ? post_offer(message) : post_parts(message);
}

bool ShmChannel::post_offer(Pending& message) {
  const Frame frame{.tag = message.tag,
                    .bytes = message.bytes,
                    .address = reinterpret_cast<std::uint64_t>(message.from),
                    .offer = offers_ + 1,
                    .place = free_places_.back(),
                    .type = message.type};
  state_of(rank(), frame).store(Offer::word(frame.offer, Offer::kOpen), std::memory_order_release);
  if (!mail_.put(message.peer, frame, nullptr)) return false;
  ++offers_;
  free_places_.pop_back();
  message.offer = frame;
  return true;
}

bool ShmChannel::post_parts(Pending& message) {
  do {
    const std::size_t part = std::min(message.bytes - message.moved, mail_.largest());
    const Frame frame{.tag = message.tag, .bytes = message.bytes, .part = part, .type = message.type};
    if (!mail_.put(message.peer, frame, static_cast<const std::byte*>(message.from) + message.moved))
      return false;
    message.moved += part;
  } while (message.moved < message.bytes);
  return message.done = true;
}

void ShmChannel::post_unsent(int peer) {
  Handles& queue = unsent_[static_cast<std::size_t>(peer)];
  while (!queue.empty()) {
    const Handle handle = queue.front();
    Pending& message = pending(handle);
    if (!post(message)) return;
    leave_queue(handle);
    if (message.offer.offer != 0) offered_.push_back(handle);
    if (message.aborted) unused_.push_back(handle);
  }
}

void ShmChannel::look_after_offers() {
  std::erase_if(offered_, [&](Handle handle) {
    Pending& message = pending(handle);
    const auto state = state_of(rank(), message.offer).load(std::memory_order_acquire);
    message.done = state == Offer::word(message.offer.offer, Offer::kCopied);
    if (message.done) free_places_.push_back(static_cast<std::uint32_t>(message.offer.place));
    return message.done;
  });
}

// A receiver that copies the message just now sees the withdrawal at the end of its copy.
void ShmChannel::withdraw(Pending& message) {
  if (message.offer.offer != 0) {
    state_of(rank(), message.offer)
        .store(Offer::word(message.offer.offer, Offer::kWithdrawn), std::memory_order_release);
    // What the caller writes to the message from now on comes after that. A release holds back only
    // what is before it.
    std::atomic_thread_fence(std::memory_order_release);
    free_places_.push_back(static_cast<std::uint32_t>(message.offer.place));
  }
  message.aborted = message.moved > 0;
}

}  // namespace altorch
