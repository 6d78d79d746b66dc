// SPDX-License-Identifier: BSD-3-Clause
// The pause between two polls of a store: short at first, later an eighth of the time waited so
// far. The pauses grow with the number of ranks that poll, so that thousands of ranks together stay
// below the request rate that one store can serve. Thread rules: one thread.
#pragma once

#include <algorithm>
#include <chrono>

#include "base/wait_clock.h"

namespace altorch {

// The pause between two polls of a rank that may wait long. `ranks` ranks together then poll at
// most about 1,000 times a second.
inline std::chrono::milliseconds calm_pace(int ranks) { return std::chrono::seconds(1) * (1 + ranks / 1024); }

class PollPause {
 public:
  // `ranks`: how many ranks poll at the same time. Pauses are cut short at `deadline`, but last at
  // least kShortest.
  PollPause(int ranks, WaitClock::time_point deadline)
      : deadline_(deadline),
        shortest_(std::max<WaitClock::duration>(kShortest, ranks * kAnswer)),
        longest_(std::max<WaitClock::duration>(kLongest, ranks * kTogether)) {}

  // Sleeps until the next poll. Calls `meanwhile` every 100 ms during the sleep, for checks that
  // cost the store little.
  template <typename Meanwhile>
  void pause(Meanwhile&& meanwhile) {
    const auto now = WaitClock::now();
    auto left = std::clamp<WaitClock::duration>((now - began_) / 8, shortest_, longest_);
    left = std::min(left, std::max<WaitClock::duration>(deadline_ - now, kShortest));
    for (; left > kShortSleep; left -= kShortSleep) {
      WaitClock::sleep_for(kShortSleep);
      meanwhile();
    }
    WaitClock::sleep_for(left);
  }
  void pause() {
    pause([] {});
  }

 private:
  static constexpr std::chrono::microseconds kShortest{200};
  static constexpr std::chrono::microseconds kAnswer{20};  // what a store takes for one
  static constexpr std::chrono::milliseconds kLongest{250};
  static constexpr std::chrono::milliseconds kTogether{1};  // a thousand looks a second of all of them
  static constexpr std::chrono::milliseconds kShortSleep{100};
  const WaitClock::time_point began_ = WaitClock::now(), deadline_;
  const WaitClock::duration shortest_, longest_;
};

}  // namespace altorch
