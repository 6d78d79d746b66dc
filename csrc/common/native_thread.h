// A detached thread that takes no signals and that no exit handler waits for. Who started it may wait for its
// end, with a deadline.
#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <string>

namespace altorch {

// `name` has at most 15 characters. `body` must not throw, and is destroyed before the thread ends: it should
// own what it uses, for the thread may outlive who started it. Throws Error(kTransport) when there can be no
// more threads.
void start_native_thread(const char* name, std::function<void()> body);

// One that is waited for. Thread rules: any thread.
class NativeThread {
 public:
  NativeThread(const char* name, std::function<void()> body);
  // Whether `body` has returned, and all that it owned is let go, before `patience` is over.
  bool ends_within(std::chrono::milliseconds patience);

 private:
  struct End {
    std::mutex mutex;
    std::condition_variable changed;
    bool reached = false;
  };
  const std::shared_ptr<End> end_ = std::make_shared<End>();
};

}  // namespace altorch
