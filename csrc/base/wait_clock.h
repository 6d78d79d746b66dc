// SPDX-License-Identifier: BSD-3-Clause
// The clock and the sleep of threads that wait for other ranks in a store. A test with thousands of
// waiting ranks replaces both, for the thread that asks for it. Thread rules: any thread.
#pragma once

#include <chrono>
#include <thread>

namespace altorch {

class WaitClock {
 public:
  using duration = std::chrono::steady_clock::duration;
  using time_point = std::chrono::steady_clock::time_point;

  class Source {
   public:
    virtual ~Source() = default;
    virtual time_point now() = 0;
    virtual void sleep_for(duration time) = 0;
  };

  static time_point now() { return source_ ? source_->now() : std::chrono::steady_clock::now(); }
  static void sleep_for(duration time) {
    if (source_)
      source_->sleep_for(time);
    else
      std::this_thread::sleep_for(time);
  }
  // Replaces the clock of this thread; null: the system's clock.
  static void use(Source* source) { source_ = source; }

 private:
  inline static thread_local Source* source_ = nullptr;
};

}  // namespace altorch
