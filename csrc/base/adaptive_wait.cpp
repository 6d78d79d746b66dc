// SPDX-License-Identifier: BSD-3-Clause
#include "base/adaptive_wait.h"

#include <sched.h>
#include <time.h>

#include <algorithm>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace altorch {
namespace {

constexpr std::uint32_t kSpins = 50;  // about the time of a cache-line hand-over, many times over
// A yield that takes longer gave the core to another thread. The next kSharedFor waits of this
// thread then do not spin: a peer on this core could not answer while this thread spins. After
// kMostTurns such yields the awaited peer is not among the threads on this core, or is late.
constexpr std::chrono::microseconds kAnothersTurn{2};
constexpr std::uint32_t kMostTurns = 20;
constexpr int kSharedFor = 64;  // waits
// One slow yield is a peer that works on this core, which is what the wait is for. If another yield
// soon is slow as well, a thread that never yields wants the core. Each yield to it costs a slice
// of the scheduler; a sleep costs a timer. If a peer can end the sleep, one slow yield is enough to
// sleep.
constexpr std::chrono::microseconds kSlowYield{500};
constexpr int kSoon = 64;           // yields
constexpr int kCrowdedFactor = 10;  // for so many times as long as the yield took: trying again costs a tenth
constexpr std::chrono::milliseconds kCrowdedAtMost{50};
constexpr std::chrono::microseconds kCrowdedSleep{20};

// Crowding is a matter of the machine, not of one wait: what a thread learned, its next waits know.
thread_local AdaptiveWait::Clock::time_point crowded_until{};
thread_local AdaptiveWait::Clock::time_point taken_until{};  // the same, by one slow yield
thread_local int fast_yields = kSoon;                        // since the last slow one
thread_local int shared_for = 0;                             // so many waits will not spin

void relax() {
#if defined(__x86_64__)
  _mm_pause();
#elif defined(__aarch64__)
  asm volatile(
      "isb" ::
          : "memory");  // `yield` is over at once on most cores; this takes about as long as x86's pause
#endif
}

}  // namespace

void AdaptiveWait::sleep_for(std::chrono::microseconds duration) {
  timespec request{0, static_cast<long>(duration.count()) * 1000};
  nanosleep(&request, nullptr);
}

std::optional<std::chrono::microseconds> AdaptiveWait::next(Clock::duration spin_budget, bool wakeable) {
  if (polls_ == 0 && shared_for > 0) --shared_for, polls_ = kSpins;
  if (++polls_ <= kSpins) {
    relax();
    return std::nullopt;
  }
  const auto now = Clock::now();
  if (polls_ == kSpins + 1) began_ = now;
  const auto waited = now - began_;
  if (wakeable && (waited > spin_budget || now < taken_until || turns_of_others_ >= kMostTurns))
    return wakeable_sleep_after(waited);
  if (waited > spin_budget) {
    // A wait of 10 ms may be noticed 0.1 ms late, one of a second 0.5 ms late.
    const auto share = std::chrono::duration_cast<std::chrono::microseconds>(waited / 100);
    return std::min(share, kLongestSleep);
  }
  if (now < crowded_until) return kCrowdedSleep;
  sched_yield();
  const auto after = Clock::now();
  const auto took = after - now;
  if (took >= kAnothersTurn) ++turns_of_others_, shared_for = kSharedFor;
  if (took < kSlowYield) {
    fast_yields = std::min(fast_yields + 1, kSoon);
    return std::nullopt;
  }
  const auto from_here = after + std::min<Clock::duration>(kCrowdedFactor * took, kCrowdedAtMost);
  taken_until = from_here;
  if (fast_yields < kSoon) crowded_until = from_here;
  fast_yields = 0;
  return std::nullopt;
}

std::chrono::microseconds AdaptiveWait::wakeable_sleep_after(Clock::duration waited) const {
  return std::clamp(std::chrono::duration_cast<std::chrono::microseconds>(waited / 10), kLongestSleep,
                    kLongestWakeableSleep);
}

std::optional<std::chrono::microseconds> AdaptiveWait::begin_sleep() {
  if (polls_ <= kSpins) polls_ = kSpins + 1, began_ = Clock::now();
  return wakeable_sleep_after(waited());
}

bool AdaptiveWait::is_crowd(int ranks, std::optional<int> cores) {
  constexpr int kMostOnACore = 2;
  return cores && ranks > kMostOnACore * *cores;
}

AdaptiveWait::Clock::duration AdaptiveWait::waited() const {
  return polls_ <= kSpins ? Clock::duration::zero() : Clock::now() - began_;
}

}  // namespace altorch
