#include "engine/callback_thread.h"

#include <pthread.h>

#include <chrono>
#include <thread>

#include "common/log.h"

namespace altorch {
namespace {

constexpr std::chrono::milliseconds kStuck{10};
constexpr std::chrono::seconds kSpareLives{2};

void start(const char* name, std::function<void()> body) {
  std::thread thread(std::move(body));
  pthread_setname_np(thread.native_handle(), name);
  thread.detach();
}

}  // namespace

// Never destroyed: the progress thread may push while the process exits.
CallbackThread& CallbackThread::instance() {
  static auto* thread = new CallbackThread();
  return *thread;
}

CallbackThread::CallbackThread() {
  start("al-callbacks", [this] { loop(/*spare=*/false); });
  start("al-relief", [this] { relieve(); });
}

void CallbackThread::push(std::function<void()> work) {
  bool wake = false, watch = false;
  {
    const std::lock_guard lock(mutex_);
    queue_.push_back(std::move(work));
    const auto idle = static_cast<std::size_t>(idle_);
    wake = idle > 0;
    // A thread that was woken before counts as idle until it runs, but takes one piece only.
    watch = queue_.size() > idle && !watching_;
    watching_ |= watch;
  }
  if (wake) wake_.notify_one();
  if (watch) stuck_.notify_one();
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
    lock.unlock();
    try {
      work();
    } catch (const std::exception& error) {
      log(LogLevel::kError, std::string("a callback failed: ") + error.what());
    }
    work = nullptr;  // outside the lock: it may own tensors
    lock.lock();
  }
}

// Asleep unless more was pushed than there were idle threads.
void CallbackThread::relieve() {
  std::unique_lock lock(mutex_);
  while (true) {
    stuck_.wait(lock, [&] { return watching_; });
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
}

}  // namespace altorch
