// SPDX-License-Identifier: BSD-3-Clause
#include "backend/gloo/inbox.h"

#include <algorithm>
#include <cstring>

#include "backend/gloo/mesh.h"

namespace altorch::backend {
namespace {

bool matches(const GlooTransfer& transfer, const GlooArrival& arrival) {
  return (transfer.peer == kAnySource || transfer.peer == arrival.peer) && transfer.tag == arrival.tag;
}

}  // namespace

void GlooInbox::open(std::vector<int> mesh_ranks, int own_mesh_rank) {
  const std::lock_guard lock(mutex_);
  mesh_ranks_ = std::move(mesh_ranks);
  own_mesh_rank_ = own_mesh_rank;
}

void GlooInbox::close() {
  std::list<Unexpected> dropped;
  {
    const std::lock_guard lock(mutex_);
    closed_ = true;
    dropped.swap(unexpected_);
  }
  for (const Unexpected& each : dropped) drop(each.arrival);
}

bool GlooInbox::is_over() const {
  const std::lock_guard lock(mutex_);
  return closed_ && left_.size() + 1 >= mesh_ranks_.size();
}

int GlooInbox::rank_of(int mesh_rank) const {
  const std::lock_guard lock(mutex_);
  return static_cast<int>(std::find(mesh_ranks_.begin(), mesh_ranks_.end(), mesh_rank) - mesh_ranks_.begin());
}

void GlooInbox::receive(const GlooTransferPtr& transfer) {
  std::optional<Unexpected> found;
  {
    const std::lock_guard lock(mutex_);
    const auto match = std::find_if(unexpected_.begin(), unexpected_.end(),
                                    [&](const Unexpected& each) { return matches(*transfer, each.arrival); });
    if (match == unexpected_.end()) {
      if (auto cause = failure_now(transfer->peer)) return transfer->finish(std::move(cause));
      target_.push_back(transfer);
      return;
    }
    found = std::move(*match);
    unexpected_.erase(match);
    transfer->peer = found->arrival.peer;
  }
  deliver(transfer, found->arrival);
}

bool GlooInbox::withdraw(const GlooTransferPtr& transfer) {
  const std::lock_guard lock(mutex_);
  return std::erase(target_, transfer) > 0;
}

void GlooInbox::arrived(const GlooArrival& arrival) {
  GlooTransferPtr transfer;
  {
    std::unique_lock lock(mutex_);
    if (closed_) {
      lock.unlock();
      return drop(arrival);
    }
    const auto match = std::find_if(target_.begin(), target_.end(),
                                    [&](const GlooTransferPtr& each) { return matches(*each, arrival); });
    if (match == target_.end()) {
      Unexpected kept{arrival, nullptr};
      if (arrival.id == 0 && arrival.bytes > 0) {
        kept.payload.reset(new std::byte[arrival.bytes]);
        std::memcpy(kept.payload.get(), arrival.payload, arrival.bytes);
        kept.arrival.payload = kept.payload.get();
      }
      unexpected_.push_back(std::move(kept));
      return;
    }
    transfer = std::move(*match);
    target_.erase(match);
    transfer->peer = arrival.peer;
  }
  deliver(transfer, arrival);
}

void GlooInbox::deliver(const GlooTransferPtr& transfer, const GlooArrival& arrival) {
  const bool from_self = arrival.peer == own_mesh_rank_;
  if (arrival.id == 0 && !from_self) mesh_.peer(arrival.peer).consumed(arrival.bytes);
  if (auto error = unfit(arrival.bytes, arrival.type, transfer->bytes, transfer->type, transfer->exact,
                         "rank " + std::to_string(rank_of(arrival.peer)))) {
    if (arrival.id != 0) mesh_.peer(arrival.peer).refuse(arrival, GlooRefusal::kUnfit);
    return transfer->finish(std::move(error));
  }
  if (arrival.id != 0) return mesh_.peer(arrival.peer).accept(transfer, arrival);
  if (arrival.bytes > 0) std::memcpy(transfer->data, arrival.payload, arrival.bytes);
  transfer->finish();
}

// Other groups need the credit that it took.
void GlooInbox::drop(const GlooArrival& arrival) {
  if (arrival.peer == own_mesh_rank_) return;
  GlooPeer& peer = mesh_.peer(arrival.peer);
  if (arrival.id == 0) return peer.consumed(arrival.bytes);
  peer.refuse(arrival, GlooRefusal::kGroupGone);
}

std::optional<Error> GlooInbox::failure_now(int mesh_rank) const {
  if (mesh_rank == own_mesh_rank_) return std::nullopt;
  if (mesh_rank != kAnySource) {
    if (auto cause = mesh_.peer(mesh_rank).failure()) return cause;
    if (!left_.contains(mesh_rank)) return std::nullopt;
    return Error(ErrorKind::kPeerLost, "global rank " + std::to_string(mesh_.job_rank(mesh_rank)) +
                                           " is lost to the group: it has destroyed its part of it");
  }
  std::optional<Error> cause;
  for (const int each : mesh_ranks_) {
    if (each == own_mesh_rank_) continue;
    cause = failure_now(each);
    if (!cause) return std::nullopt;  // this peer may still send
  }
  return cause;
}

std::optional<Error> GlooInbox::failure(int mesh_rank) const {
  const std::lock_guard lock(mutex_);
  return failure_now(mesh_rank);
}

void GlooInbox::fail_unmatchable() {
  std::erase_if(target_, [&](const GlooTransferPtr& transfer) {
    auto cause = failure_now(transfer->peer);
    if (!cause) return false;
    transfer->finish(std::move(cause));
    return true;
  });
}

void GlooInbox::left(int mesh_rank) {
  const std::lock_guard lock(mutex_);
  left_.insert(mesh_rank);
  fail_unmatchable();
}

void GlooInbox::lost() {
  const std::lock_guard lock(mutex_);
  fail_unmatchable();
}

}  // namespace altorch::backend
