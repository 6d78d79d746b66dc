#include "backend/store_worker.h"

#include <unistd.h>

#include <algorithm>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>

#include "common/native_thread.h"

namespace altorch::backend {

std::shared_ptr<StoreWorker> StoreWorker::of(c10::intrusive_ptr<c10d::Store> store) {
  if (auto* prefixed = dynamic_cast<c10d::PrefixStore*>(store.get()))
    store = prefixed->getUnderlyingNonPrefixStore();
  struct Latest {
    std::mutex mutex;
    c10::weak_intrusive_ptr<c10d::Store> original{c10::intrusive_ptr<c10d::Store>()};
    std::weak_ptr<StoreWorker> worker;
  };
  static auto* latest = new Latest();
  const std::lock_guard lock(latest->mutex);
  if (auto found = latest->worker.lock();
      found && (found->store() == store || latest->original.lock() == store))
    return found;
  auto made = std::make_shared<StoreWorker>(store->clone());
  latest->original = c10::weak_intrusive_ptr<c10d::Store>(store);
  latest->worker = made;
  return made;
}

StoreWorker::StoreWorker(c10::intrusive_ptr<c10d::Store> store)
    : state_(std::make_shared<State>()), process_(getpid()) {
  state_->store = std::move(store);
  start_native_thread("al-store", [state = state_] { serve(*state); });
}

StoreWorker::~StoreWorker() {
  if (getpid() != process_) return;  // the lock may be anybody's in a forked child
  const std::lock_guard lock(state_->mutex);
  state_->stopping = true;
  state_->submitted.notify_one();
}

void StoreWorker::check_not_forked() const {
  if (getpid() == process_) return;
  throw Error(ErrorKind::kClosed, "a forked child has no connection to the store of its parent's job");
}

void StoreWorker::serve(State& state) {
  std::unique_lock lock(state.mutex);
  while (true) {
    state.submitted.wait(lock, [&] { return state.stopping || !state.queue.empty(); });
    if (state.queue.empty()) return;
    const std::shared_ptr<StoreRequest> request = state.queue.front();
    state.busy_since = Clock::now();
    lock.unlock();
    std::exception_ptr error;
    try {
      request->run(*state.store);
    } catch (...) {
      error = std::current_exception();
    }
    lock.lock();
    state.queue.pop_front();
    request->error = std::move(error);
    request->done = true;
    state.busy_since = {};
    state.finished.notify_all();
  }
}

void StoreWorker::submit(std::shared_ptr<StoreRequest> request) {
  check_not_forked();
  const std::lock_guard lock(state_->mutex);
  state_->queue.push_back(std::move(request));
  state_->submitted.notify_one();
}

bool StoreWorker::wait(const StoreRequest& request, std::chrono::milliseconds patience) {
  check_not_forked();
  std::unique_lock lock(state_->mutex);
  const auto now = Clock::now();
  const bool busy = state_->busy_since != Clock::time_point{};
  const auto since = busy ? std::min(state_->busy_since, now) : now;
  return state_->finished.wait_until(lock, since + patience, [&] { return request.done; });
}

}  // namespace altorch::backend
