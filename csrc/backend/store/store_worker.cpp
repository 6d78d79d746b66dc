// SPDX-License-Identifier: BSD-3-Clause
#include "backend/store/store_worker.h"

#include <unistd.h>

#include <algorithm>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>

namespace altorch::backend {
namespace {

constexpr std::chrono::seconds kEndTimeout{1};
constexpr std::chrono::seconds kAfterTheStart{2};  // the first requests of a program are over then

// The worker of today; its mutex guards all leases, too.
struct Latest {
  std::mutex mutex;
  std::weak_ptr<StoreWorker> worker;
};

// Null if there can be no clone. If the store's host is gone, that takes the store's timeout. The
// original connection could tell whether the host is gone, but another thread may be blocking on
// it.
c10::intrusive_ptr<c10d::Store> clone_of(c10d::Store& original) noexcept {
  try {
    return original.clone();
  } catch (...) {
    return nullptr;
  }
}

Latest& latest() {
  static auto* instance = new Latest();
  return *instance;
}

}  // namespace

StoreLease::~StoreLease() { worker_->close(); }

std::shared_ptr<StoreWorker> StoreWorker::of(c10::intrusive_ptr<c10d::Store> store) {
  if (auto* prefixed = dynamic_cast<c10d::PrefixStore*>(store.get()))
    store = prefixed->getUnderlyingNonPrefixStore();
  const std::lock_guard lock(latest().mutex);
  if (auto found = latest().worker.lock(); found && found->serves(store)) return found;
  auto made = std::make_shared<StoreWorker>(std::move(store));
  latest().worker = made;
  return made;
}

std::shared_ptr<StoreLease> StoreWorker::lease(const c10::intrusive_ptr<c10d::Store>& store) {
  const auto worker = of(store);
  const std::lock_guard lock(latest().mutex);
  if (auto found = worker->lease_.lock()) return found;
  auto made = std::make_shared<StoreLease>(worker);
  worker->lease_ = made;
  worker->was_leased_ = true;
  return made;
}

// One whose last lease has ended is closed, or about to be.
bool StoreWorker::serves(const c10::intrusive_ptr<c10d::Store>& store) const {
  if (was_leased_ && lease_.expired()) return false;
  const std::lock_guard lock(state_->mutex);
  return !state_->stopping && (state_->store == store || original_ == store);
}

StoreWorker::StoreWorker(c10::intrusive_ptr<c10d::Store> original)
    : original_(std::move(original)),
      state_(std::make_shared<State>(original_)),
      thread_("al-store", [state = state_] { serve(*state); }),
      process_(getpid()) {}

void StoreWorker::close() noexcept {
  if (getpid() != process_) return;  // in a forked child, a thread of the parent may hold the lock
  {
    const std::lock_guard lock(state_->mutex);
    if (state_->stopping) return;
    state_->stopping = true;
    state_->submitted.notify_one();
  }
  const bool idle = thread_.ends_within(kEndTimeout);
  c10::intrusive_ptr<c10d::Store> original, own;  // outlive the lock
  const std::lock_guard lock(state_->mutex);
  original = std::move(original_);
  if (idle) own = std::move(state_->store);
}

void StoreWorker::check_not_forked() const {
  if (getpid() == process_) return;
  throw Error(ErrorKind::kClosed, "a forked child has no connection to the store of its parent's job");
}

void StoreWorker::check_open() const {
  if (!state_->stopping) return;
  throw Error(ErrorKind::kClosed, "the store was let go with the last group of this process");
}

c10::intrusive_ptr<c10d::Store> StoreWorker::store() const {
  check_not_forked();
  const std::lock_guard lock(state_->mutex);
  check_open();
  return state_->store;
}

c10::intrusive_ptr<c10d::Store> StoreWorker::original() const {
  check_not_forked();
  const std::lock_guard lock(state_->mutex);
  check_open();
  return original_;
}

void StoreWorker::settle() {
  if (getpid() != process_) return;
  const std::lock_guard lock(state_->mutex);
  state_->settled = true;
  state_->submitted.notify_one();
}

void StoreWorker::serve(State& state) {
  const auto is_called = [&] { return state.stopping || !state.queue.empty(); };
  const auto may_clone = [&] { return state.settled && !state.cloned; };
  std::exception_ptr broken;  // a connection that broke: it stays so, and torch logs a page for every try
  std::unique_lock lock(state.mutex);
  while (true) {
    state.submitted.wait(lock, [&] { return is_called() || may_clone(); });
    if (!is_called()) state.submitted.wait_for(lock, kAfterTheStart, is_called);
    if (state.stopping && state.queue.empty()) return;
    const auto request = state.queue.empty() ? nullptr : state.queue.front();
    const bool clones = may_clone() && !state.stopping;
    state.busy_since = Clock::now();
    lock.unlock();
    const auto own = clones ? clone_of(*state.store) : nullptr;  // no other thread sets state.store
    if (own) broken = nullptr;
    std::exception_ptr error = broken;
    try {
      if (request && !broken) request->run(own ? *own : *state.store);
    } catch (const c10::DistNetworkError&) {
      error = broken = std::current_exception();
    } catch (...) {
      error = std::current_exception();
    }
    lock.lock();
    if (clones) state.cloned = true;  // or it cannot be, and the original has to do
    if (own) state.store = own;
    state.busy_since = {};
    if (request) {
      state.queue.pop_front();
      request->error = std::move(error);
      request->done = true;
      state.finished.notify_all();
    }
  }
}

void StoreWorker::submit(std::shared_ptr<StoreRequest> request) {
  check_not_forked();
  const std::lock_guard lock(state_->mutex);
  check_open();
  state_->queue.push_back(std::move(request));
  state_->submitted.notify_one();
}

bool StoreWorker::wait(const StoreRequest& request, std::chrono::milliseconds timeout) {
  check_not_forked();
  std::unique_lock lock(state_->mutex);
  const auto now = Clock::now();
  const bool busy = state_->busy_since != Clock::time_point{};
  const auto since = busy ? std::min(state_->busy_since, now) : now;
  return state_->finished.wait_until(lock, since + timeout, [&] { return request.done; });
}

}  // namespace altorch::backend
