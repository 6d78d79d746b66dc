// SPDX-License-Identifier: BSD-3-Clause
// Wakes threads that wait for messages over Gloo.
//
// Other transports make progress only while a thread polls them. Over Gloo altorch's own threads
// move the messages, and a caller that polls takes the processor from them. So the caller sleeps
// briefly between two polls. Thread rules: any thread.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>

namespace altorch::backend {

class GlooEvent {
 public:
  // One for the process, because a thread may wait for several groups at once.
  static GlooEvent& instance() {
    static auto* event = new GlooEvent();
    return *event;
  }
  std::uint64_t count() const { return count_.load(); }
  void signal() {
    count_.fetch_add(1);
    if (waiters_.load() == 0) return;
    const std::lock_guard lock(mutex_);
    changed_.notify_all();
  }
  // Returns when the count is no longer `seen`, or after `most`.
  void wait(std::uint64_t seen, std::chrono::microseconds most) {
    std::unique_lock lock(mutex_);
    waiters_.fetch_add(1);
    changed_.wait_for(lock, most, [&] { return count() != seen; });
    waiters_.fetch_sub(1);
  }

 private:
  std::atomic<std::uint64_t> count_{0};
  std::atomic<int> waiters_{0};
  std::mutex mutex_;
  std::condition_variable changed_;
};

}  // namespace altorch::backend
