// Between two looks at a store that something is waited for in: short naps at first, and an eighth of the
// time waited so far later on, so that many ranks that wait long ask little. Thread rules: one thread.
#pragma once

#include <algorithm>
#include <chrono>
#include <thread>

namespace altorch {

class PollPause {
 public:
  void pause() {
    const auto waited = std::chrono::steady_clock::now() - began_;
    std::this_thread::sleep_for(
        std::clamp<std::chrono::steady_clock::duration>(waited / 8, kShortest, kLongest));
  }

 private:
  static constexpr std::chrono::microseconds kShortest{200};
  static constexpr std::chrono::milliseconds kLongest{100};
  const std::chrono::steady_clock::time_point began_ = std::chrono::steady_clock::now();
};

}  // namespace altorch
