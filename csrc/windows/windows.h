// SPDX-License-Identifier: BSD-3-Clause
// The windows of a group, and their tasks in flight, which are driven as collectives and messages
// are.
//
// Thread rules: any thread; drive() by one thread at a time.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "runtime/one_sided.h"

namespace altorch {

class Communicator;
class Window;
struct WindowTask;

class Windows : public OneSided {
 public:
  using Clock = std::chrono::steady_clock;

  Windows();
  ~Windows() override;
  // Those of the group.
  static Windows& of(Communicator& group);
  // The number of a new window: the same on all ranks, because they open windows in the same order.
  int next_number();
  void add(std::shared_ptr<Window> window);
  void remove(const Window& window);
  bool any();
  // The group ends on this rank alone: releases all windows. Afterwards no peer touches memory that
  // this rank may free.
  void release();
  void post(std::shared_ptr<WindowTask> task);
  // How many tasks were posted so far.
  std::uint64_t posted();
  // Whether an access of this window to `rank` (kAnySource: any) is under way, among the first
  // `posted` of the group. Waits for signals do not count, nor does what was never posted here.
  // Does not wait or throw.
  bool is_busy(const Window& window, int rank, std::uint64_t posted);
  // At exit, before the transports go: from now on this rank serves no peer, in any group.
  static void stop();
  // Advances the tasks. True while a task is left, or while peers may ask something of this rank.
  bool drive(Clock::time_point now, Driven& found) override;

 private:
  void let_go(std::vector<std::shared_ptr<Window>>& windows, std::vector<std::shared_ptr<WindowTask>>& tasks);

  std::mutex mutex_;  // guards all of it
  int number_ = 0;
  std::vector<std::shared_ptr<Window>> windows_;
  std::vector<std::shared_ptr<WindowTask>> tasks_;  // in the order in which they were posted
  std::uint64_t posted_ = 0;
};

}  // namespace altorch
