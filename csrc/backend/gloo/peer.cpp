// SPDX-License-Identifier: BSD-3-Clause
#include "backend/gloo/peer.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>

#include <algorithm>
#include <cstring>

namespace altorch::backend {
namespace {

constexpr int kFrameTag = 0;
// Frames that were sent are only memory to release: the finisher is woken for many of them at once.
constexpr std::size_t kKeptFrames = 32;
constexpr std::int64_t kKeptBytes = 1 << 20;
// Gloo takes its own timeout for a failure of all connections. Deadlines are the engine's affair.
constexpr std::chrono::hours kForever{24 * 365};

int body_tag(std::uint64_t id) { return 1 + static_cast<int>(id % (1u << 30)); }

// Gloo's messages begin with a source line and end with advice.
std::string essence(const std::string& text) {
  std::size_t begin = text.rfind('[', 0) == 0 ? text.find("] ") : std::string::npos;
  begin = begin == std::string::npos ? 0 : begin + 2;
  return text.substr(begin, text.find(". ", begin) - begin);
}

}  // namespace

GlooPeer::GlooPeer(c10::intrusive_ptr<c10d::Backend> gloo, int peer, int global_rank, GlooListener& listener)
    : gloo_(std::move(gloo)), peer_(peer), global_rank_(global_rank), listener_(listener) {}

GlooPeer::~GlooPeer() { stop(); }

void GlooPeer::start() {
  running_.emplace();
  finisher_.emplace("al-gloo-wait", [this] { wait_for_posted(); });
  reader_.emplace("al-gloo-read", [this] { read(); });
}

void GlooPeer::flush(std::chrono::steady_clock::time_point deadline) {
  std::unique_lock lock(mutex_);
  flushing_ = true;
  wake_.notify_all();
  drained_.wait_until(lock, deadline, [&] { return posted_.empty() || failure_; });
}

void GlooPeer::stop() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    if (reading_) reading_->abort();
    for (const auto& posted : posted_) posted->work->abort();
  }
  wake_.notify_all();
  for (std::optional<NativeThread>* thread : {&reader_, &finisher_}) {
    if (*thread) (*thread)->join();
    thread->reset();
  }
  running_.reset();
}

std::optional<Error> GlooPeer::failure() const {
  const std::lock_guard lock(mutex_);
  return failure_;
}

bool GlooPeer::send_now(const void* data, std::size_t bytes, std::uint64_t group, std::int64_t tag,
                        ElementType type) {
  if (bytes > kGlooFrameBytes) return false;
  if (bytes > kGlooUncountedBytes) {
    const std::lock_guard lock(mutex_);
    if (credit_ < bytes) return false;
    credit_ -= bytes;
  }
  return send_frame({.kind = Kind::kMessage, .type = type, .group = group, .tag = tag, .bytes = bytes}, data,
                    bytes);
}

void GlooPeer::consumed(std::size_t bytes) {
  if (bytes <= kGlooUncountedBytes) return;
  std::size_t returned = 0;
  {
    const std::lock_guard lock(mutex_);
    owed_ += bytes;
    if (owed_ < kGlooCreditBytes / 4) return;
    std::swap(returned, owed_);
  }
  send_frame({.kind = Kind::kCredit, .bytes = returned}, nullptr, 0);
}

void GlooPeer::announce(const GlooTransferPtr& transfer) {
  std::uint64_t id = 0;
  std::optional<Error> failure;
  {
    const std::lock_guard lock(mutex_);
    failure = failure_;
    id = ++last_id_;
    if (!failure) announced_[id] = transfer;
  }
  if (failure) return transfer->finish(failure);
  send_frame({.kind = Kind::kRequest,
              .type = transfer->type,
              .group = transfer->group,
              .tag = transfer->tag,
              .bytes = transfer->bytes,
              .id = id},
             nullptr, 0);
}

void GlooPeer::accept(const GlooTransferPtr& transfer, const GlooArrival& arrival) {
  if (post_body(transfer, arrival.id, arrival.bytes))
    send_frame({.kind = Kind::kClear, .id = arrival.id}, nullptr, 0);
}

void GlooPeer::refuse(const GlooArrival& arrival, GlooRefusal why) {
  send_frame({.kind = Kind::kRefused, .why = why, .id = arrival.id}, nullptr, 0);
}

void GlooPeer::leave(std::uint64_t group) { send_frame({.kind = Kind::kLeave, .group = group}, nullptr, 0); }

bool GlooPeer::withdraw(const GlooTransferPtr& transfer) {
  const std::lock_guard lock(mutex_);
  return std::erase_if(announced_, [&](const auto& entry) { return entry.second == transfer; }) > 0;
}

void GlooPeer::break_off(const GlooTransferPtr& transfer) {
  const Error reason(ErrorKind::kTransport, "a message was aborted half-way");
  abort([&](const Posted& posted) { return posted.transfer == transfer; }, reason);
  lose(Error(ErrorKind::kTransport, "the connection to global rank " + std::to_string(global_rank_) +
                                        " cannot be used since an earlier message was aborted half-way; "
                                        "destroy the process group (all of it) and make a new one"));
}

bool GlooPeer::send_frame(const Header& header, const void* payload, std::size_t bytes) {
  auto posted = std::make_shared<Posted>();
  posted->tensor = at::empty({static_cast<std::int64_t>(sizeof header + bytes)}, at::kByte);
  auto* to = static_cast<std::byte*>(posted->tensor.data_ptr());
  std::memcpy(to, &header, sizeof header);
  if (bytes > 0) std::memcpy(to + sizeof header, payload, bytes);
  std::vector<at::Tensor> tensors = {posted->tensor};
  try {
    const std::lock_guard lock(mutex_);
    if (failure_ || stopping_) return false;
    posted->work = gloo_->send(tensors, peer_, kFrameTag);
    keep(std::move(posted));
    return true;
  } catch (const std::exception& error) {
    lose(broken(essence(error.what())));
    return false;
  }
}

bool GlooPeer::post_body(const GlooTransferPtr& transfer, std::uint64_t id, std::size_t bytes) {
  auto posted = std::make_shared<Posted>();
  posted->tensor = at::from_blob(transfer->data, {static_cast<std::int64_t>(bytes)}, at::kByte);
  posted->transfer = transfer;
  posted->id = id;
  std::vector<at::Tensor> tensors = {posted->tensor};
  std::optional<Error> failure;
  try {
    const std::lock_guard lock(mutex_);
    failure = failure_;
    if (stopping_) failure = Error(ErrorKind::kClosed, "the group was destroyed");
    if (!failure) {
      posted->work = transfer->is_receive ? gloo_->recv(tensors, peer_, body_tag(id))
                                          : gloo_->send(tensors, peer_, body_tag(id));
      keep(std::move(posted));
      return true;
    }
  } catch (const std::exception& error) {
    failure = broken(essence(error.what()));
    lose(*failure);
  }
  transfer->finish(failure);
  return false;
}

void GlooPeer::keep(std::shared_ptr<Posted> posted) {
  if (posted->transfer) {
    ++bodies_;
  } else {
    kept_bytes_ += posted->tensor.numel();
  }
  posted_.push_back(std::move(posted));
  if (finisher_wanted()) wake_.notify_one();
}

bool GlooPeer::finisher_wanted() const {
  return bodies_ > 0 || posted_.size() > kKeptFrames || kept_bytes_ > kKeptBytes ||
         (flushing_ && !posted_.empty());
}

void GlooPeer::wait_for_posted() {
  std::unique_lock lock(mutex_);
  while (true) {
    wake_.wait(lock, [&] { return stopping_ || finisher_wanted(); });
    if (posted_.empty()) return;
    if (stopping_ && bodies_ == 0) return;
    const std::shared_ptr<Posted> head = posted_.front();
    lock.unlock();
    std::optional<Error> outcome;
    try {
      if (!head->work->wait(kForever)) outcome = Error(ErrorKind::kClosed, "the group was destroyed");
    } catch (const std::exception& error) {
      outcome = broken(essence(error.what()));
    }
    lock.lock();
    if (head->reason) outcome = head->reason;
    posted_.pop_front();
    if (head->transfer) {
      --bodies_;
    } else {
      kept_bytes_ -= head->tensor.numel();
    }
    if (posted_.empty()) drained_.notify_all();
    head->work = nullptr;  // from here on Gloo does not touch the buffer
    lock.unlock();
    if (outcome && outcome->kind() == ErrorKind::kPeerLost) lose(*outcome);
    if (head->transfer) head->transfer->finish(std::move(outcome));
    lock.lock();
  }
}

void GlooPeer::read() {
  const auto post = [&](const at::Tensor& frame) -> std::optional<Error> {
    std::vector<at::Tensor> tensors = {frame};
    try {
      const std::lock_guard lock(mutex_);
      reading_ = stopping_ ? nullptr : gloo_->recv(tensors, peer_, kFrameTag);
    } catch (const std::exception& error) {
      return broken(essence(error.what()));
    }
    return std::nullopt;
  };
  // The next receive is posted before the last frame is looked at.
  constexpr auto kFrame = static_cast<std::int64_t>(sizeof(Header) + kGlooFrameBytes);
  at::Tensor frame = at::empty({kFrame}, at::kByte), next = at::empty({kFrame}, at::kByte);
  std::optional<Error> failure = post(frame);
  while (!failure && reading_) {
    try {
      if (!reading_->wait(kForever)) return;
    } catch (const std::exception& error) {
      return lose(broken(essence(error.what())));
    }
    failure = post(next);
    dispatch(frame);
    std::swap(frame, next);
  }
  if (failure) lose(*failure);
}

void GlooPeer::dispatch(const at::Tensor& frame) {
  Header header;
  const auto* from = static_cast<const std::byte*>(frame.data_ptr());
  std::memcpy(&header, from, sizeof header);
  const std::uint64_t id = header.id;
  const bool is_message = header.kind == Kind::kMessage;  // whose bytes are in the frame, and which has no id
  if (is_message || header.kind == Kind::kRequest) {
    if (is_message != (id == 0) || (is_message && header.bytes > kGlooFrameBytes))
      return lose(broken("what came through it is no message"));
    return listener_.arrived({peer_, header.group, header.tag, static_cast<std::size_t>(header.bytes),
                              header.type, id, from + sizeof header});
  }
  if (header.kind == Kind::kLeave) return listener_.left(peer_, header.group);
  if (header.kind == Kind::kCredit) {
    const std::lock_guard lock(mutex_);
    credit_ += header.bytes;
    return;
  }
  if (header.kind == Kind::kWithdrawn) {
    const Error reason(ErrorKind::kTransport, "global rank " + std::to_string(global_rank_) +
                                                  " withdrew the message that it was about to send");
    return abort([&](const Posted& posted) { return posted.id == id && posted.transfer->is_receive; },
                 reason);
  }
  GlooTransferPtr transfer;
  {
    const std::lock_guard lock(mutex_);
    const auto found = announced_.find(id);
    if (found != announced_.end()) {
      transfer = std::move(found->second);
      announced_.erase(found);
    }
  }
  if (!transfer) {
    if (header.kind == Kind::kClear) send_frame({.kind = Kind::kWithdrawn, .id = id}, nullptr, 0);
  } else if (header.kind == Kind::kClear) {
    post_body(transfer, id, transfer->bytes);
  } else if (header.why == GlooRefusal::kGroupGone) {
    transfer->finish(
        Error(ErrorKind::kPeerLost, "global rank " + std::to_string(global_rank_) +
                                        " is lost to the group: it has destroyed its part of it"));
  } else {
    transfer->finish(Error(ErrorKind::kMismatch, "A message of " + std::to_string(transfer->bytes) +
                                                     " bytes has not the size or type that global rank " +
                                                     std::to_string(global_rank_) +
                                                     " expects: the ranks disagree about a tensor."));
  }
}

void GlooPeer::abort(const std::function<bool(const Posted&)>& chosen, const Error& reason) {
  const std::lock_guard lock(mutex_);
  for (const auto& posted : posted_) {
    if (!posted->transfer || !posted->work || !chosen(*posted)) continue;
    posted->reason = reason;
    posted->work->abort();
  }
}

void GlooPeer::lose(const Error& error) {
  std::unordered_map<std::uint64_t, GlooTransferPtr> announced;
  {
    const std::lock_guard lock(mutex_);
    if (stopping_ || failure_) return;
    failure_ = error;
    announced.swap(announced_);
  }
  drained_.notify_all();
  for (const auto& [id, transfer] : announced) transfer->finish(error);
  listener_.lost(peer_);
}

Error GlooPeer::broken(const std::string& cause) const {
  return Error(ErrorKind::kPeerLost, "global rank " + std::to_string(global_rank_) +
                                         " is lost: Gloo has no connection to it (" + cause +
                                         "); look for its error above, then start the job again");
}

}  // namespace altorch::backend
