// SPDX-License-Identifier: BSD-3-Clause
// How a host thread waits for something that it can only poll, without starving the threads that it
// waits for.
//
//   AdaptiveWait wait;
//   while (!done()) wait.pause();
//
// A wait spins briefly first, because the answer is usually on its way. Then it calls sched_yield.
// It sleeps briefly instead if several yields take long, because then other threads want this core.
// It also sleeps once the wait itself is long, because then a short delay matters little. Measured
// on 2 cores: with 4 ranks a barrier costs 4.1 ms with a pure spin, and 2.5 us with spin and yield.
// If a peer can end the sleep, the wait sleeps sooner: a shared core goes to the threads that work.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "base/wait_target.h"

namespace altorch {

class AdaptiveWait {
 public:
  using Clock = std::chrono::steady_clock;

  // Spins, yields or sleeps once; sleeps for at most kLongestSleep. `spin_budget`: until the wait
  // has lasted so long the peer is not late, and the wait sleeps only if other threads want the
  // core.
  void pause(Clock::duration spin_budget = kSpinBudget) {
    if (const auto sleep = next(spin_budget, false)) sleep_for(*sleep);
  }
  // The same, if a raise of `until` ends the sleep, which then lasts at most kLongestWakeableSleep.
  // `sleep_until(most)` replaces until.sleep(most), for a caller that must do more than sleep. If
  // it returns false, the wait pauses as without `until`.
  void pause(Clock::duration spin_budget, const WaitTarget& until) {
    pause(spin_budget, until, [&](std::chrono::microseconds most) { return until.sleep(most); });
  }
  template <class Sleep>
  void pause(Clock::duration spin_budget, const WaitTarget& until, const Sleep& sleep_until) {
    if (!until) return pause(spin_budget);
    const auto sleep = until.crowded() ? begin_sleep() : next(spin_budget, true);
    if (sleep && !sleep_until(*sleep)) pause(spin_budget);
  }
  // Whether `ranks` ranks that wait on `cores` cores (nothing: unknown) should sleep at once: a
  // yield then costs more than a sleep that a peer ends. Since Linux 6.18 a yield gives away a
  // whole slice of the scheduler (3 ms). If some ranks have yielded more often than others, it
  // takes them milliseconds to meet again. Measured on 2 cores, all_reduce of 8 bytes, median of
  // batches that begin out of step: 8 ranks take 1.5 to 7 ms with yields and 0.37 ms with sleeps; 4
  // ranks take 0.07 and 0.09 ms.
  static bool is_crowd(int ranks, std::optional<int> cores);
  // Time since the first pause that yielded; zero while still spinning.
  Clock::duration waited() const;
  void reset() { *this = AdaptiveWait(); }

  static constexpr std::chrono::microseconds kLongestSleep{500}, kLongestWakeableSleep{5000};
  static constexpr std::chrono::milliseconds kSpinBudget{5}, kLongestSpinBudget{200};
  // The spin budget for a call that moves so many bytes, at 1 GB/s, which crowded cores still
  // manage. MPI moves a large message in fragments, and the caller sees only the last one. With
  // sleeps between the fragments 64 MiB between two processes took 215 ms instead of 31 ms.
  static constexpr Clock::duration spin_budget_for(std::int64_t bytes) {
    return std::min<Clock::duration>(kSpinBudget + std::chrono::nanoseconds(bytes), kLongestSpinBudget);
  }

 private:
  // Spins or yields; or returns how long to sleep.
  std::optional<std::chrono::microseconds> next(Clock::duration spin_budget, bool wakeable);
  static void sleep_for(std::chrono::microseconds duration);
  std::chrono::microseconds wakeable_sleep_after(Clock::duration waited) const;
  std::optional<std::chrono::microseconds> begin_sleep();

  std::uint32_t polls_ = 0;
  std::uint32_t turns_of_others_ = 0;  // on this core
  Clock::time_point began_{};
};

// What one pass over the calls in flight has found: whether something moved, and what the next wait
// may sleep for.
struct Driven {
  bool moved = false;  // a call has made progress
  AdaptiveWait::Clock::duration spin_budget = AdaptiveWait::kSpinBudget;

  // Notes a call that is still pending. `keeper`: owns the awaited memory, if that may be freed
  // before the sleeping thread wakes.
  void pends(AdaptiveWait::Clock::duration its = AdaptiveWait::kSpinBudget, WaitTarget until = {},
             std::shared_ptr<const void> keeper = nullptr) {
    if (keeper) keepers_.push_back(std::move(keeper));
    spin_budget = std::max(spin_budget, its);
    target_ = !pending_ || target_ == until ? until : WaitTarget();
    pending_ = true;
  }
  // What to sleep for, if all pending calls await the same number; otherwise empty.
  const WaitTarget& wait_target() const { return target_; }

 private:
  bool pending_ = false;
  WaitTarget target_;
  std::vector<std::shared_ptr<const void>> keepers_;
};

}  // namespace altorch
