#include "engine/callback_thread.h"

#include <pthread.h>

#include "common/log.h"

namespace altorch {

// Never destroyed: the progress thread may push while the process exits.
CallbackThread& CallbackThread::instance() {
  static auto* thread = new CallbackThread();
  return *thread;
}

CallbackThread::CallbackThread() {
  std::thread thread([this] { loop(); });
  pthread_setname_np(thread.native_handle(), "al-callbacks");
  thread.detach();
}

void CallbackThread::push(std::function<void()> work) {
  bool wake = false;
  {
    const std::lock_guard lock(mutex_);
    queue_.push_back(std::move(work));
    wake = sleeping_;
  }
  if (wake) wake_.notify_one();
}

void CallbackThread::loop() {
  std::vector<std::function<void()>> batch;
  while (true) {
    {
      std::unique_lock lock(mutex_);
      sleeping_ = true;
      wake_.wait(lock, [&] { return !queue_.empty(); });
      sleeping_ = false;
      batch.swap(queue_);
    }
    for (auto& work : batch) {
      try {
        work();
      } catch (const std::exception& error) {
        log(LogLevel::kError, std::string("a callback failed: ") + error.what());
      }
      work = nullptr;
    }
    batch.clear();
  }
}

}  // namespace altorch
