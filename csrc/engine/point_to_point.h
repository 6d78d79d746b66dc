// SPDX-License-Identifier: BSD-3-Clause
// Messages of a group on host memory: posted by the calling thread at once, independent of collectives. Those
// that wait for a gate are posted in the order of the calls, by whoever drives.
//
// Thread rules: any thread, drive() by one at a time.
#pragma once

#include <array>
#include <deque>
#include <memory>
#include <mutex>
#include <vector>

#include "base/adaptive_wait.h"
#include "engine/group.h"
#include "engine/task.h"
#include "engine/watchdog.h"
#include "transports/links.h"

namespace altorch {

class PointToPoint {
 public:
  using Clock = std::chrono::steady_clock;

  PointToPoint(Group& group, Watchdog& watchdog, Links& links);

  // Begins a message without a gate that nobody waits for yet. True: it is done, and the task has served; otherwise it must
  // be posted next. Throws Error when it was not begun.
  bool attempt(Task& task);
  // True when it has to be driven; false when it is finished already. Throws Error when it was not begun.
  bool post(const std::shared_ptr<Task>& task);
  // Moves on what is in flight; true while something is left.
  bool drive(Clock::time_point now, Driven& found);

 private:
  // Sends, or receives: begins those whose gates have opened. Messages must not overtake.
  bool drive_gated(std::deque<std::shared_ptr<Task>>& gated, Driven& found);
  bool drive_begun(Clock::time_point now, Driven& found);
  // Throws Error when it was not posted.
  State begin(Task& task, std::optional<Error>& noticed);
  // The same; true when it is finished already.
  bool begin(Task& task);
  Error not_begun(const Task& task, const Error& error);
  void ended_well(Task& task);
  // It is done, or has failed with what `noticed` says.
  void end(Task& task, const std::optional<Error>& noticed);

  Group& group_;
  Watchdog& watchdog_;
  Links& links_;
  std::vector<std::shared_ptr<Task>> begun_;  // of who drives

  std::mutex mutex_;                                        // guards what follows
  std::vector<std::shared_ptr<Task>> posted_;               // begun, and not taken over by drive() yet
  std::array<std::deque<std::shared_ptr<Task>>, 2> gated_;  // sends and receives that were not begun yet
};

}  // namespace altorch
