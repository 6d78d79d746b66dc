// SPDX-License-Identifier: BSD-3-Clause
// How a host thread waits for something that it can only poll, without starving those it waits for.
//
//   AdaptiveWait wait;
//   while (!done()) wait.pause();
//
// A short spin first (the answer is usually on its way), then sched_yield; when yields take long one after
// another, others want this core, and when the wait itself grows long, nobody is in a hurry: both turn into
// short sleeps. Measured on 2 cores: with 4 ranks a pure spin costs 4.1 ms a barrier, spin-then-yield 2.5 us.
// Where whoever is waited for can end a sleep, it comes sooner: a core that is shared goes to those who work.
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

  // Gives the core away for as long as seems wise. Never longer than kLongestSleep. `patience`: for so long nobody is
  // late yet.
  void pause(Clock::duration patience = kPatience) {
    if (const auto sleep = next(patience, false)) sleep_for(*sleep);
  }
  // The same, for something that ends a sleep, of kLongestDoze at most. `doze(most)` may sleep instead of `until`, where
  // more than that is to be done.
  void pause(Clock::duration patience, const Awaited& until) {
    pause(patience, until, [&](std::chrono::microseconds most) { return until.sleep(most); });
  }
  template <class Doze>
  void pause(Clock::duration patience, const Awaited& until, const Doze& doze) {
    if (!until) return pause(patience);
    const auto sleep = until.crowded() ? begin_sleep() : next(patience, true);
    if (sleep && !doze(*sleep)) pause(patience);
  }
  // So many ranks that wait in this way on so many cores (nothing: unknown). A yield then costs more than a sleep that a
  // peer ends: since Linux 6.18 it gives away a whole slice of the scheduler (3 ms), and where some ranks have yielded
  // more often than others it takes them milliseconds to meet again. Measured on 2 cores, all_reduce of 8 bytes, median
  // of batches that begin out of step: 8 ranks 1.5 to 7 ms with yields, 0.37 with sleeps; 4 ranks 0.07 and 0.09.
  static bool is_crowd(int ranks, std::optional<int> cores);
  // Time since the first pause that yielded; zero while still spinning.
  Clock::duration waited() const;
  void reset() { *this = AdaptiveWait(); }

  static constexpr std::chrono::microseconds kLongestSleep{500}, kLongestDoze{5000};
  static constexpr std::chrono::milliseconds kPatience{5}, kMostPatience{200};
  // For a call that moves so many bytes: 1 GB/s, what crowded cores still manage. MPI's large messages come in
  // fragments, of which nobody sees more than the last: 64 MiB between two processes took 215 ms instead of 31 where
  // the waits between them turned into sleeps.
  static constexpr Clock::duration patience_for(std::int64_t bytes) {
    return std::min<Clock::duration>(kPatience + std::chrono::nanoseconds(bytes), kMostPatience);
  }

 private:
  // Spins or yields; or says how long to sleep.
  std::optional<std::chrono::microseconds> next(Clock::duration patience, bool dozes);
  static void sleep_for(std::chrono::microseconds duration);
  std::chrono::microseconds doze_after(Clock::duration waited) const;
  std::optional<std::chrono::microseconds> begin_sleep();

  std::uint32_t polls_ = 0;
  std::uint32_t turns_of_others_ = 0;  // on this core
  Clock::time_point began_{};
};

// What somebody who moves things on has found.
struct Driven {
  bool moved = false;  // something has
  AdaptiveWait::Clock::duration patience = AdaptiveWait::kPatience;

  // `keeper`: what the awaited memory belongs to, where it may go before whoever sleeps for it wakes.
  void pends(AdaptiveWait::Clock::duration its = AdaptiveWait::kPatience, Awaited until = {},
             std::shared_ptr<const void> keeper = nullptr) {
    if (keeper) keepers_.push_back(std::move(keeper));
    patience = std::max(patience, its);
    awaited_ = !pending_ || awaited_ == until ? until : Awaited();
    pending_ = true;
  }
  // Where it is all that there is to wait for.
  const Awaited& awaited() const { return awaited_; }

 private:
  bool pending_ = false;
  Awaited awaited_;
  std::vector<std::shared_ptr<const void>> keepers_;
};

}  // namespace altorch
