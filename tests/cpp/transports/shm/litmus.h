// SPDX-License-Identifier: BSD-3-Clause
// Ranks that are threads race each other through one memory for many rounds. What they write says
// of which round it is, so that what comes too early, too late or in pieces is seen.
//
// What such a race can show: a wrong order in the code, everywhere; a missing acquire or release,
// under ThreadSanitizer and on processors that reorder (x86 hardly does, nor does an emulator that
// runs on it).
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <stdexcept>
#include <string>
#include <thread>

#include "base/adaptive_wait.h"
#include "base/fnv.h"

namespace altorch::shm::litmus {

// What happens in a round, the same for all ranks that ask.
inline std::uint64_t draw(std::uint64_t round, std::uint64_t what) {
  const std::uint64_t bits = Fnv().add(round).add(what).value();
  return (bits ^ bits >> 29) * 0x9E3779B97F4A7C15u >> 32;  // 2^64 by the golden ratio
}

// Of whom, of when, and which of his.
inline std::uint64_t stamp(int rank, std::uint64_t round, std::uint64_t place) {
  return round << 20 | static_cast<std::uint64_t>(rank) << 12 | place;
}

// Now and then a rank is slow, at a place where its peers must not mind.
inline void stumble(std::uint64_t round, std::uint64_t where) {
  if (draw(round, 1000 + where) % 16 == 0) std::this_thread::yield();
}

class Race {
 public:
  // `weight`: of a round, where it takes that many times as long as others.
  explicit Race(std::chrono::milliseconds time = std::chrono::milliseconds(150), std::uint64_t weight = 1)
      : rounds_(wanted(weight)), end_(std::chrono::steady_clock::now() + time) {}
  // Whether there is to be another round: as many as ALTORCH_TEST_LITMUS_ROUNDS says by its weight,
  // or what a short time allows.
  bool goes_on(std::uint64_t round) const {
    return rounds_ > 0 ? round <= rounds_ : round <= 1 || std::chrono::steady_clock::now() < end_;
  }
  // Ends it for all ranks. It synchronizes nothing: no mistake may hide behind it.
  void expect(bool right, const char* what, std::uint64_t round) {
    if (right) return;
    over_.store(true, std::memory_order_relaxed);
    throw std::runtime_error(std::string(what) + " in round " + std::to_string(round));
  }
  // A rank has failed otherwise.
  void stop() { over_.store(true, std::memory_order_relaxed); }
  template <typename Condition>
  void until(Condition&& holds) {
    AdaptiveWait wait;
    while (!holds()) {
      if (over_.load(std::memory_order_relaxed)) throw std::runtime_error("another rank has stopped");
      if (wait.waited() > std::chrono::seconds(60)) throw std::runtime_error("no peer came for a minute");
      wait.pause();
    }
  }

 private:
  static std::uint64_t wanted(std::uint64_t weight) {
    const char* const rounds = std::getenv("ALTORCH_TEST_LITMUS_ROUNDS");
    return rounds ? (std::strtoull(rounds, nullptr, 10) + weight - 1) / weight : 0;
  }

  const std::uint64_t rounds_;
  const std::chrono::steady_clock::time_point end_;
  std::atomic<bool> over_ = false;
};

}  // namespace altorch::shm::litmus
