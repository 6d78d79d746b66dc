// SPDX-License-Identifier: BSD-3-Clause
// Thousands of ranks in one thread, in a time of their own (WaitClock). Who sleeps goes ahead of
// the others, until it would see what they do: then whichever is furthest back goes on, on a stack
// of its own. So they do the same in every run, however busy the machine is.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/wait_clock.h"

namespace altorch {

class SimulatedTime : public WaitClock::Source {
 public:
  explicit SimulatedTime(int ranks);
  ~SimulatedTime() override;

  int ranks() const { return static_cast<int>(ranks_.size()); }
  // Runs `body(rank)` for each and returns what each threw: "" for nothing.
  std::vector<std::string> run(const std::function<void(int)>& body);

  WaitClock::time_point now() override;
  void sleep_for(WaitClock::duration time) override;
  // Returns when no rank is behind this one. To be called before what others see.
  void meet_the_others();
  int rank() const;  // that runs

 private:
  struct Rank;
  struct Queue;
  static void begin();
  void go_on_with_the_next();

  WaitClock::time_point now_{std::chrono::hours(1)};
  std::vector<std::unique_ptr<Rank>> ranks_;
  std::unique_ptr<Queue> queue_;
  std::unique_ptr<Rank> caller_;  // of run()
  Rank* running_;
  const std::function<void(int)>* body_ = nullptr;
};

}  // namespace altorch
