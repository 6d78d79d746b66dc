// SPDX-License-Identifier: BSD-3-Clause
#include "support/test_watchdog.h"

#include <cstdio>
#include <cstdlib>

namespace altorch {

TestWatchdog::TestWatchdog(std::chrono::seconds timeout, std::function<void()> rescue)
    : timeout_(timeout),
      rescue_(std::move(rescue)),
      deadline_(std::chrono::steady_clock::now() + timeout),
      thread_([this] { watch(); }) {}

TestWatchdog::~TestWatchdog() {
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void TestWatchdog::progress() {
  const std::lock_guard lock(mutex_);
  deadline_ = std::chrono::steady_clock::now() + timeout_;
}

bool TestWatchdog::rescued() const {
  const std::lock_guard lock(mutex_);
  return rescued_;
}

void TestWatchdog::watch() {
  std::unique_lock lock(mutex_);
  while (!ending_) {
    if (std::chrono::steady_clock::now() < deadline_) {
      changed_.wait_until(lock, deadline_);
    } else if (rescued_) {
      std::fprintf(stderr, "watchdog: the test still hangs after its rescue; the program ends here\n");
      std::fflush(nullptr);
      std::_Exit(1);
    } else {
      rescued_ = true;
      deadline_ = std::chrono::steady_clock::now() + timeout_;
      rescue_();
    }
  }
}

}  // namespace altorch
