// SPDX-License-Identifier: BSD-3-Clause
// The one way to start a thread. Its threads are detached, take no signals, and no exit handler
// waits for them.
//
// A start fails where the user's limit on processes or the cgroup's is reached, perhaps in the
// middle of a job. A call that needs a thread starts it before it queues anything. Destructors and
// exit handlers work without the thread.
#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <string>

namespace altorch {

// `name` has at most 15 characters. `body` must not throw, and is destroyed before the thread ends:
// it should own what it uses, for the thread may outlive its starter. Throws Error(kTransport),
// which names both limits.
void start_native_thread(const char* name, std::function<void()> body);
// What that Error says.
std::string no_more_threads(const char* name, int error);

// For tests: after `starts` more starts of threads, each start fails as if a limit were reached.
// Negative: none does.
void fail_thread_starts_after(int starts);

// A thread that its owner waits for. Thread rules: any thread.
class NativeThread {
 public:
  // Throws as start_native_thread() does.
  NativeThread(const char* name, std::function<void()> body);
  // Whether `body` has returned and was destroyed within `timeout`.
  bool ends_within(std::chrono::milliseconds timeout);
  // The same, without a deadline.
  void join();

 private:
  struct End {
    std::mutex mutex;
    std::condition_variable changed;
    bool reached = false;
  };
  std::shared_ptr<End> end_ = std::make_shared<End>();
};

}  // namespace altorch
