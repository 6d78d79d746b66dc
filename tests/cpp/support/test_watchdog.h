// SPDX-License-Identifier: BSD-3-Clause
// Frees a test that waits in vain, so that no test hangs: things that wait for one another on a GPU
// cannot be interrupted, only told to give up.
#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>

namespace altorch {

class TestWatchdog {
 public:
  // Without progress for `timeout`, `rescue` is called from another thread; without progress for as
  // long again, the program ends.
  TestWatchdog(std::chrono::seconds timeout, std::function<void()> rescue);
  ~TestWatchdog();
  TestWatchdog(const TestWatchdog&) = delete;
  TestWatchdog& operator=(const TestWatchdog&) = delete;

  // Patience starts anew.
  void progress();
  // Whether the rescue was needed.
  bool rescued() const;

 private:
  void watch();

  const std::chrono::seconds timeout_;
  const std::function<void()> rescue_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::chrono::steady_clock::time_point deadline_;
  bool rescued_ = false, ending_ = false;
  std::thread thread_;
};

}  // namespace altorch
