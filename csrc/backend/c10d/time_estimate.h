// SPDX-License-Identifier: BSD-3-Clause
// torch's time estimate (c10d::Backend::startTimeEstimate): from start to end, the collectives that
// the starting thread makes in a group are added up by select/costs.h, and not run. Those of other
// threads run. Thread rules: any thread.
#pragma once

#include <atomic>
#include <mutex>
#include <thread>

namespace altorch::backend {

class TimeEstimate {
 public:
  // Throws Error(kInvalidArgument) while an estimate of the group is under way, and where no
  // Guarded lives on this thread.
  void start();
  // us. Throws Error(kInvalidArgument) where this thread has started none.
  float end();
  // Whether this thread has started one.
  bool is_running() const { return thread_.load(std::memory_order_relaxed) == std::this_thread::get_id(); }
  void add(double seconds);

  // Promises that end() follows start() on this thread, whatever is thrown between: else later
  // collectives of the program would not run. python/altorch/_time_estimate.py makes it.
  static void guard(bool begins);

 private:
  std::atomic<std::thread::id> thread_{};  // of no thread: none is under way
  std::mutex mutex_;                       // no other lock is taken under it
  double seconds_ = 0;
};

}  // namespace altorch::backend
