// Runs what must not stop progress: callbacks of Futures, and the release of tensors, which may want Python's
// lock.
#pragma once

#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace altorch {

// Thread rules: any thread may push; what is pushed runs in that order, on one thread of the process.
class CallbackThread {
 public:
  static CallbackThread& instance();
  void push(std::function<void()> work);

 private:
  CallbackThread();
  void loop();

  std::mutex mutex_;
  std::condition_variable wake_;
  std::vector<std::function<void()>> queue_;
  bool sleeping_ = false;
};

}  // namespace altorch
