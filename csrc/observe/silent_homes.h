// Homes that did not answer when they were last asked something: nobody waits for them again for a while, so that many calls that
// end at their deadlines together do not end one after another. Thread rules: any thread.
#pragma once

#include <chrono>
#include <map>
#include <mutex>
#include <string>

#include "common/wait_clock.h"

namespace altorch {

class SilentHomes {
 public:
  void add(const std::string& home) {
    const std::lock_guard lock(mutex_);
    until_[home] = WaitClock::now() + kFor;
  }
  void remove(const std::string& home) {
    const std::lock_guard lock(mutex_);
    until_.erase(home);
  }
  bool contains(const std::string& home) const {
    const std::lock_guard lock(mutex_);
    const auto found = until_.find(home);
    return found != until_.end() && WaitClock::now() < found->second;
  }

 private:
  static constexpr std::chrono::seconds kFor{30};
  mutable std::mutex mutex_;  // guards what follows
  std::map<std::string, WaitClock::time_point> until_;
};

}  // namespace altorch
