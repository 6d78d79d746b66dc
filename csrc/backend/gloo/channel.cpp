// SPDX-License-Identifier: BSD-3-Clause
#include "backend/gloo/channel.h"

#include <unistd.h>

#include <algorithm>
#include <thread>
#include <vector>

namespace altorch::backend {
namespace {

// How long a cancelled message whose body is on its way may take to arrive before it is broken off.
constexpr std::chrono::seconds kGrace{2};
// One look takes no longer, though nothing arrives: the thread may have other groups to look after.
constexpr std::chrono::microseconds kSleep{200};

GlooTransferPtr* transfer_of(const Request& request) { return static_cast<GlooTransferPtr*>(request.extra); }

void attach(Request& request, GlooTransferPtr transfer) {
  request.extra = new GlooTransferPtr(std::move(transfer));
  request.handle = 1;
}

bool wait_until_done(const GlooTransfer& transfer, std::chrono::steady_clock::time_point deadline) {
  while (!transfer.done.load(std::memory_order_acquire)) {
    if (std::chrono::steady_clock::now() > deadline) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return true;
}

}  // namespace

GlooChannel::GlooChannel(std::shared_ptr<GlooMesh> mesh, std::uint64_t group, int rank,
                         const std::vector<int>& job_ranks, std::shared_ptr<const KnownDeaths> deaths)
    : mesh_(std::move(mesh)),
      group_(group),
      rank_(rank),
      process_(getpid()),
      mesh_ranks_(mesh_->mesh_ranks_of(job_ranks)),
      deaths_(std::move(deaths)),
      inbox_(mesh_->enter(group_, mesh_ranks_)) {}

GlooChannel::~GlooChannel() {
  if (getpid() == process_) {
    mesh_->leave(group_, mesh_ranks_);
    return;
  }
  // Forked: the threads stayed behind, with their locks in any state.
  static_cast<void>(new std::shared_ptr<GlooMesh>(std::move(mesh_)));
  static_cast<void>(new std::shared_ptr<GlooInbox>(std::move(inbox_)));
}

void GlooChannel::send(const void* data, std::size_t bytes, int to, std::int64_t tag, Request& request) {
  request = Request{0, nullptr, bytes, to, /*is_receive=*/false, request.exact, request.type};
  const int mesh_rank = mesh_rank_of(to);
  auto cause = inbox_->failure(mesh_rank);
  if (to == rank_) {  // its bytes are kept until they are asked for
    return inbox_->arrived({.peer = mesh_rank,
                            .group = group_,
                            .tag = tag,
                            .bytes = bytes,
                            .type = request.type,
                            .payload = static_cast<const std::byte*>(data)});
  }
  if (!cause && mesh_->peer(mesh_rank).send_now(data, bytes, group_, tag, request.type)) return;
  auto transfer = std::make_shared<GlooTransfer>();
  transfer->data = const_cast<void*>(data);
  transfer->bytes = bytes;
  transfer->peer = mesh_rank;
  transfer->group = group_;
  transfer->tag = tag;
  transfer->type = request.type;
  attach(request, transfer);
  if (cause || (cause = inbox_->failure(mesh_rank))) return transfer->finish(std::move(cause));
  mesh_->peer(mesh_rank).announce(transfer);
}

void GlooChannel::receive(void* data, std::size_t bytes, int from, std::int64_t tag, Request& request) {
  request = Request{0, nullptr, bytes, from, /*is_receive=*/true, request.exact, request.type};
  auto transfer = std::make_shared<GlooTransfer>();
  transfer->data = data;
  transfer->bytes = bytes;
  transfer->peer = from == kAnySource ? kAnySource : mesh_rank_of(from);
  transfer->group = group_;
  transfer->tag = tag;
  transfer->type = request.type;
  transfer->is_receive = true;
  transfer->exact = request.exact;
  attach(request, transfer);
  inbox_->receive(transfer);
}

// A thread that drives several requests tests them in turn. Only the test of one of them may put
// the thread to sleep, and only if nothing has happened since the test of that request before.
void GlooChannel::sleep_over(const GlooTransfer* pending, std::uint64_t seen) {
  const GlooTransfer* expected = nullptr;
  if (waited_for_.compare_exchange_strong(expected, pending) || expected != pending) return;
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
    if (request.is_receive && !error) request.peer = inbox_->rank_of(transfer.peer);
    release(request);
    if (error) return State::kFailed;
  }
  if (!pending) return State::kDone;
  sleep_over(pending, seen);
  return State::kPending;
}

bool GlooChannel::withdraw(const GlooTransferPtr& transfer) {
  return transfer->is_receive ? inbox_->withdraw(transfer) : mesh_->peer(transfer->peer).withdraw(transfer);
}

// The messages that are on their way share one grace to arrive, and one to be broken off, however
// many there are: the caller waits to hear of the error, and other groups wait for this thread.
bool GlooChannel::cancel(std::span<Request> requests) {
  std::vector<Request*> under_way;
  for (Request& request : requests) {
    if (request.handle == 0) continue;
    if (withdraw(*transfer_of(request)))
      release(request);
    else
      under_way.push_back(&request);
  }
  const auto release_the_done = [&](const auto& may_wait_for) {
    const auto deadline = std::chrono::steady_clock::now() + kGrace;
    std::erase_if(under_way, [&](Request* request) {
      const GlooTransferPtr transfer = *transfer_of(*request);
      if (!may_wait_for(*transfer) || !wait_until_done(*transfer, deadline)) return false;
      release(*request);
      return true;
    });
  };
  release_the_done([&](const GlooTransfer& transfer) {
    return !deaths_ || transfer.peer < 0 || !deaths_->is_dead(mesh_->job_rank(transfer.peer));
  });
  for (Request* request : under_way) {
    const GlooTransferPtr& transfer = *transfer_of(*request);
    mesh_->peer(transfer->peer).break_off(transfer);
  }
  release_the_done([](const GlooTransfer&) { return true; });
  return under_way.empty();
}

}  // namespace altorch::backend
