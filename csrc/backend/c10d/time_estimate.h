// SPDX-License-Identifier: BSD-3-Clause
// A time estimate of torch's: between start and end, a group's collectives are added up by
// select/costs.h and not run. Thread rules: any thread.
#pragma once

#include <atomic>
#include <mutex>

namespace altorch::backend {

class TimeEstimate {
 public:
  // Both throw Error(kInvalidArgument) where that is not so.
  void start();
  float end();  // us
  bool is_running() const { return running_.load(std::memory_order_relaxed); }
  void add(double seconds);

 private:
  std::atomic<bool> running_{false};
  std::mutex mutex_;  // a leaf
  double seconds_ = 0;
};

}  // namespace altorch::backend
