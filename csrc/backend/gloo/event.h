// SPDX-License-Identifier: BSD-3-Clause
// Wakes who waits for messages over Gloo.
//
// Other transports are polled, which makes them move. Here threads of our own move the messages, and a caller
// that polls only takes the processor from them; so it sleeps a little between two looks. Thread rules: any
// thread.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>

namespace altorch::backend {

class GlooEvent {
 public:
  // One for the process: whoever waits may be waiting for several groups.
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
