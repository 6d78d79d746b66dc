// SPDX-License-Identifier: BSD-3-Clause
#include "transports/shm/channel.h"

#include <algorithm>
#include <numeric>
#include <utility>

namespace altorch {

ShmChannel::ShmChannel(std::shared_ptr<std::byte> memory, shm::Mail mail, std::vector<shm::Process> processes)
    : memory_(std::move(memory)),
      processes_(std::move(processes)),
      mail_(std::move(mail)),
      unsent_(static_cast<std::size_t>(mail_.size())),
      free_places_(shm::Mail::kPlaces),
      arriving_(static_cast<std::size_t>(mail_.size())) {
  std::iota(free_places_.begin(), free_places_.end(), 0u);
}

ShmChannel::Pending& ShmChannel::open(Request& request, std::int64_t tag) {
  if (unused_.empty()) {
    pending_.emplace_back();
    unused_.push_back(pending_.size());
  }
  request.handle = unused_.back();
  unused_.pop_back();
  return pending(request.handle) = {.is_receive = request.is_receive,
                                    .exact = request.exact,
                                    .peer = request.peer,
                                    .tag = tag,
                                    .bytes = request.bytes,
                                    .type = request.type};
}

void ShmChannel::close(Request& request) {
  unused_.push_back(request.handle);
  request.handle = 0;
}

void ShmChannel::enter(Handles& queue, Handle handle) {
  Pending& each = pending(handle);
  each.queue = &queue;
  each.place = queue.insert(queue.end(), handle);
}

void ShmChannel::leave_queue(Handle handle) {
  Pending& each = pending(handle);
  if (Handles* const queue = std::exchange(each.queue, nullptr)) queue->erase(each.place);
}

void ShmChannel::send(const void* data, std::size_t bytes, int peer, std::int64_t tag, Request& request) {
  const std::lock_guard lock(mutex_);
  request.is_receive = false;
  request.peer = peer;
  request.bytes = bytes;
  auto& queue = unsent_[static_cast<std::size_t>(peer)];
  if (queue.empty() && bytes <= mail_.largest() &&
      mail_.put(peer, {.tag = tag, .bytes = bytes, .part = bytes, .type = request.type}, data)) {
    request.handle = 0;
    return;
  }
  open(request, tag).from = data;
  enter(queue, request.handle);
  if (queue.size() == 1) post_unsent(peer);
}

void ShmChannel::receive(void* data, std::size_t bytes, int peer, std::int64_t tag, Request& request) {
  const std::lock_guard lock(mutex_);
  request.is_receive = true;
  request.peer = peer;
  request.bytes = bytes;
  open(request, tag).to = data;
  take_early(request.handle);
}

void ShmChannel::progress() {
  for (int peer = 0; peer < size(); ++peer) {
    take_mail(peer);
    post_unsent(peer);
  }
  std::erase_if(copying_, [&](Handle handle) { return copy_on(pending(handle)); });
  look_after_offers();
}

State ShmChannel::test(std::span<Request> requests, std::optional<Error>& error) {
  const std::lock_guard lock(mutex_);
  progress();
  State state = State::kDone;
  for (Request& request : requests) {
    if (request.handle == 0) continue;
    const Pending& each = pending(request.handle);
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
    Pending& each = pending(request.handle);
    if (each.is_receive) {
      forget(request.handle);
    } else if (!each.done) {
      withdraw(each);
      std::erase(offered_, request.handle);
      if (each.aborted) {  // it keeps its place, so that the peer is told
        request.handle = 0;
        continue;
      }
      leave_queue(request.handle);
    }
    close(request);
  }
  return true;
}

}  // namespace altorch
