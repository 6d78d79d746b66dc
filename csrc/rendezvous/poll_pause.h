// SPDX-License-Identifier: BSD-3-Clause
// Between two looks at a store that something is waited for in: short ones at first, and an eighth of the time waited so far
// later on. The more ranks wait, the longer: what thousands ask has to stay below what a store can answer.
// Thread rules: one thread.
#pragma once

#include <algorithm>
#include <chrono>

#include "base/wait_clock.h"

namespace altorch {

// Between two questions of one of `ranks` that all may have waited long: some thousands a second of all of them.
inline std::chrono::milliseconds calm_pace(int ranks) { return std::chrono::seconds(1) * (1 + ranks / 1024); }

class PollPause {
 public:
  // `ranks`: that look at the same time. None goes on after `deadline`.
  PollPause(int ranks, WaitClock::time_point deadline)
      : deadline_(deadline),
        shortest_(std::max<WaitClock::duration>(kShortest, ranks * kAnswer)),
        longest_(std::max<WaitClock::duration>(kLongest, ranks * kTogether)) {}

  // Until the next look. `meanwhile` is called ten times a second, for what costs the store little.
  template <typename Meanwhile>
  void pause(Meanwhile&& meanwhile) {
    const auto now = WaitClock::now();
    auto left = std::clamp<WaitClock::duration>((now - began_) / 8, shortest_, longest_);
    left = std::min(left, std::max<WaitClock::duration>(deadline_ - now, kShortest));
    for (; left > kNap; left -= kNap) {
      WaitClock::sleep_for(kNap);
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
  static constexpr std::chrono::milliseconds kNap{100};
  const WaitClock::time_point began_ = WaitClock::now(), deadline_;
  const WaitClock::duration shortest_, longest_;
};

}  // namespace altorch
