// SPDX-License-Identifier: BSD-3-Clause
// How a host thread waits for something that it can only poll, without starving the threads that it waits for.
//
//   AdaptiveWait wait;
//   while (!done()) wait.pause();
//
// A wait spins briefly first, because the answer is usually on its way. Then it calls sched_yield. It sleeps briefly
// instead if several yields take long, because then other threads want this core. It also sleeps once the wait itself
// is long, because then a short delay matters little. Measured on 2 cores: with 4 ranks a barrier costs 4.1 ms with a
// pure spin, and 2.5 us with spin and yield.
// If a peer can end the sleep, the wait sleeps sooner: a shared core goes to the threads that work.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "base/awaited.h"

namespace altorch {

class AdaptiveWait {
 public:
  using Clock = std::chrono::steady_clock;

  // Spins, yields or sleeps once; sleeps for at most kLongestSleep. `patience`: until the wait has lasted so long the
  // peer is not late, and the wait sleeps only if other threads want the core.
  void pause(Clock::duration patience = kPatience) {
    if (const auto sleep = next(patience, false)) sleep_for(*sleep);
  }
  // The same, if a raise of `until` ends the sleep, which then lasts at most kLongestDoze. `doze(most)` replaces
  // until.sleep(most), for a caller that must do more than sleep. If it returns false, the wait pauses as without
  // `until`.
  void pause(Clock::duration patience, const Awaited& until) {
    pause(patience, until, [&](std::chrono::microseconds most) { return until.sleep(most); });
  }
  template <class Doze>
  void pause(Clock::duration patience, const Awaited& until, const Doze& doze) {
    if (!until) return pause(patience);
    const auto sleep = until.crowded() ? begin_sleep() : next(patience, true);
    if (sleep && !doze(*sleep)) pause(patience);
  }
  // Whether `ranks` ranks that wait on `cores` cores (nothing: unknown) should sleep at once: a yield then costs more
  // than a sleep that a peer ends. Since Linux 6.18 a yield gives away a whole slice of the scheduler (3 ms). If some
  // ranks have yielded more often than others, it takes them milliseconds to meet again. Measured on 2 cores,
  // all_reduce of 8 bytes, median of batches that begin out of step: 8 ranks take 1.5 to 7 ms with yields and 0.37 ms
  // with sleeps; 4 ranks take 0.07 and 0.09 ms.
  static bool is_crowd(int ranks, std::optional<int> cores);
  // Time since the first pause that yielded; zero while still spinning.
  Clock::duration waited() const;
  void reset() { *this = AdaptiveWait(); }

  static constexpr std::chrono::microseconds kLongestSleep{500}, kLongestDoze{5000};
  static constexpr std::chrono::milliseconds kPatience{5}, kMostPatience{200};
  // The patience for a call that moves so many bytes, at 1 GB/s, which crowded cores still manage. MPI moves a large
  // message in fragments, and the caller sees only the last one. With sleeps between the fragments 64 MiB between two
  // processes took 215 ms instead of 31 ms.
  static constexpr Clock::duration patience_for(std::int64_t bytes) {
    return std::min<Clock::duration>(kPatience + std::chrono::nanoseconds(bytes), kMostPatience);
  }

 private:
  // Spins or yields; or returns how long to sleep.
  std::optional<std::chrono::microseconds> next(Clock::duration patience, bool dozes);
  static void sleep_for(std::chrono::microseconds duration);
  std::chrono::microseconds doze_after(Clock::duration waited) const;
  std::optional<std::chrono::microseconds> begin_sleep();

  std::uint32_t polls_ = 0;
  std::uint32_t turns_of_others_ = 0;  // on this core
  Clock::time_point began_{};
};

// What one pass over the calls in flight has found: whether something moved, and what the next wait may sleep for.
struct Driven {
  bool moved = false;  // a call has made progress
  AdaptiveWait::Clock::duration patience = AdaptiveWait::kPatience;

  // Notes a call that is still pending. `keeper`: owns the awaited memory, if that may be freed before the sleeping
  // thread wakes.
  void pends(AdaptiveWait::Clock::duration its = AdaptiveWait::kPatience, Awaited until = {},
             std::shared_ptr<const void> keeper = nullptr) {
    if (keeper) keepers_.push_back(std::move(keeper));
    patience = std::max(patience, its);
    awaited_ = !pending_ || awaited_ == until ? until : Awaited();
    pending_ = true;
  }
  // What to sleep for, if all pending calls await the same number; otherwise empty.
  const Awaited& awaited() const { return awaited_; }

 private:
  bool pending_ = false;
  Awaited awaited_;
  std::vector<std::shared_ptr<const void>> keepers_;
};

}  // namespace altorch
