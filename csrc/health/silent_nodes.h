// SPDX-License-Identifier: BSD-3-Clause
// Remembers for 30 s which nodes left a question unanswered. This process does not ask them
// meanwhile, so that calls which reach their deadlines together do not wait for the same node one
// after another. Thread rules: any thread.
#pragma once

#include <chrono>
#include <map>
#include <mutex>
#include <string>

#include "base/wait_clock.h"

namespace altorch {

class SilentNodes {
 public:
  void add(const std::string& node) {
    const std::lock_guard lock(mutex_);
    until_[node] = WaitClock::now() + kFor;
  }
  void remove(const std::string& node) {
    const std::lock_guard lock(mutex_);
    until_.erase(node);
  }
  bool contains(const std::string& node) const {
    const std::lock_guard lock(mutex_);
    const auto found = until_.find(node);
    return found != until_.end() && WaitClock::now() < found->second;
  }

 private:
  static constexpr std::chrono::seconds kFor{30};
  mutable std::mutex mutex_;  // guards what follows
  std::map<std::string, WaitClock::time_point> until_;
};

}  // namespace altorch
