// SPDX-License-Identifier: BSD-3-Clause
#include "runtime/callback_thread.h"

#include <chrono>
#include <thread>

#include "base/error.h"
#include "base/log.h"
#include "base/per_process.h"
#include "platform/native_thread.h"

namespace altorch {
namespace {

constexpr std::chrono::milliseconds kStuck{10};
constexpr std::chrono::seconds kSpareLives{2};

// False where no more threads can be started: then what is queued waits for those that run.
bool start(const char* name, std::function<void()> body) {
  try {
    start_native_thread(name, std::move(body));
    return true;
  } catch (const Error&) {
    return false;
  }
}

}  // namespace

// Never destroyed: the progress thread may push while the process exits.
CallbackThread& CallbackThread::instance() { return PerProcess<CallbackThread>::get(); }

CallbackThread::CallbackThread() {
  start_native_thread("al-callbacks", [this] { loop(/*spare=*/false); });
}

void CallbackThread::push(std::function<void()> work) {
  bool wake = false, watch = false, first = false;
  {
    const std::lock_guard lock(mutex_);
    if (finished_) {
      [[maybe_unused]] const auto* kept = new std::function<void()>(std::move(work));
      return;
    }
    queue_.push_back(std::move(work));
    const auto idle = static_cast<std::size_t>(idle_);
    wake = idle > 0;
    // A thread that was woken before counts as idle until it runs, but takes one piece only.
    watch = queue_.size() > idle && !watching_;
    watching_ |= watch;
    first = watch && !has_relief_;
    has_relief_ |= watch;
  }
  if (wake) wake_.notify_one();
  if (first && !start("al-relief", [this] { relieve(); })) {
    const std::lock_guard lock(mutex_);  // the next push tries again
    watching_ = has_relief_ = false;
  } else if (watch) {
    stuck_.notify_one();
  }
}

bool CallbackThread::finish(std::chrono::milliseconds timeout) {
  CallbackThread* made = PerProcess<CallbackThread>::if_made();
  if (!made) return true;
  CallbackThread& self = *made;
  std::unique_lock lock(self.mutex_);
  const bool done =
      self.done_.wait_for(lock, timeout, [&] { return self.queue_.empty() && self.busy_ == 0; });
  self.finished_ = true;
  [[maybe_unused]] const auto* kept = new auto(std::move(self.queue_));
  self.queue_.clear();
  return done;
}

void CallbackThread::loop(bool spare) {
  std::unique_lock lock(mutex_);
  while (true) {
    const auto has_work = [&] { return !queue_.empty(); };
    ++idle_;
    if (spare) {
      wake_.wait_for(lock, kSpareLives, has_work);
    } else {
      wake_.wait(lock, has_work);
    }
    --idle_;
    if (queue_.empty()) return;
    auto work = std::move(queue_.front());
    queue_.pop_front();
    ++begun_;
    ++busy_;
    lock.unlock();
    try {
      work();
    } catch (const std::exception& error) {
      log(LogLevel::kError, std::string("a callback failed: ") + error.what());
    }
    work = nullptr;  // outside the lock: it may own tensors
    lock.lock();
    --busy_;
    if (queue_.empty() && busy_ == 0) done_.notify_all();
  }
}

// Asleep unless more was pushed than there were idle threads; ends when that has not been so for a
// while.
void CallbackThread::relieve() {
  std::unique_lock lock(mutex_);
  while (true) {
    if (!stuck_.wait_for(lock, kSpareLives, [&] { return watching_; })) break;
    const std::uint64_t before = begun_;
    lock.unlock();
    std::this_thread::sleep_for(kStuck);
    lock.lock();
    if (queue_.empty()) {
      watching_ = false;
    } else if (begun_ == before && idle_ == 0) {
      start("al-callbacks+", [this] { loop(/*spare=*/true); });
    }
  }
  has_relief_ = false;
}

}  // namespace altorch
