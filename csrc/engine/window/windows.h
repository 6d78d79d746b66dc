// SPDX-License-Identifier: BSD-3-Clause
// The windows of a group, and their tasks in flight, which are driven as collectives and messages are.
//
// Thread rules: any thread; drive() by one thread at a time.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "base/adaptive_wait.h"

namespace altorch {

class Window;
struct WindowTask;

class Windows {
 public:
  using Clock = std::chrono::steady_clock;

  Windows();
  ~Windows();
  // The number of a new window: the same on all ranks, because they open windows in the same order.
  int next_number();
  void add(std::shared_ptr<Window> window);
  void remove(const Window& window);
  bool any();
  // The group ends on this rank alone: releases all windows. Afterwards no peer touches memory that this rank may free.
  void release();
  void post(std::shared_ptr<WindowTask> task);
  // How many tasks were posted so far.
  std::uint64_t posted();
  // Whether an access of this window to `rank` (kAnySource: any) is under way that was among the first `posted`.
  bool is_busy(const Window& window, int rank, std::uint64_t posted);
  // At exit, before the transports go: from now on this rank serves no peer, in any group.
  static void stop();
  // Advances the tasks. True while a task is left, or while peers may ask something of this rank.
  bool drive(Clock::time_point now, Driven& found);

 private:
  void let_go(std::vector<std::shared_ptr<Window>>& windows, std::vector<std::shared_ptr<WindowTask>>& tasks);

  std::mutex mutex_;  // guards all of it
  int number_ = 0;
  std::vector<std::shared_ptr<Window>> windows_;
  std::vector<std::shared_ptr<WindowTask>> tasks_;  // in the order in which they were posted
  std::uint64_t posted_ = 0;
};

}  // namespace altorch
