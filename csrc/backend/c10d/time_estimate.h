// SPDX-License-Identifier: BSD-3-Clause
// torch's time estimate (c10d::Backend::startTimeEstimate). Between start() and end(), collectives
// of the starting thread do not run: their estimated durations (select/costs.h) are added up.
// Collectives of other threads run. Thread rules: any thread.
#pragma once

#include <atomic>
#include <mutex>
#include <thread>

namespace altorch::backend {

class TimeEstimate {
 public:
  // Starts an estimate on this thread. Throws Error(kInvalidArgument) if the group has an estimate
  // already, or if guard(true) is not in effect on this thread.
  void start();
  // Returns microseconds. Throws Error(kInvalidArgument) if this thread has not called start().
  float end();
  // Whether this thread has called start(), and not yet end().
  bool is_running() const { return thread_.load(std::memory_order_relaxed) == std::this_thread::get_id(); }
  void add(double seconds);  // of one call; on the thread of start()

  // Counts, up (true) or down (false), the scopes of this thread that call end() also after an
  // exception. start() wants one: else an exception would leave the estimate active, and later
  // collectives would not run. python/altorch/_time_estimate.py calls it.
  static void guard(bool begins);

 private:
  std::atomic<std::thread::id> thread_{};  // of no thread: none is under way
  std::mutex mutex_;                       // no other lock is taken under it
  double seconds_ = 0;
};

}  // namespace altorch::backend
