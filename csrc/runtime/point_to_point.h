// SPDX-License-Identifier: BSD-3-Clause
// Messages of a group on host memory. The calling thread posts them at once, independent of
// collectives. Messages that wait for a gate are posted by the thread that drives: sends in the
// order of the calls, and receives likewise.
//
// Thread rules: any thread; drive() by one thread at a time.
#pragma once

#include <array>
#include <deque>
#include <memory>
#include <mutex>
#include <vector>

#include "base/adaptive_wait.h"
#include "runtime/group.h"
#include "runtime/task.h"
#include "runtime/watchdog.h"
#include "transports/links.h"

namespace altorch {

class PointToPoint {
 public:
  using Clock = std::chrono::steady_clock;

  PointToPoint(Group& group, Watchdog& watchdog, Links& links);

  // Begins a message without a gate, for a caller that does not wait. True: the message is done,
  // and the task is no longer needed; neither finish() nor on_done is called. False: the caller
  // must post() the task next. Throws Error if the message was not begun: refused, or the post
  // itself failed, which closes the group. The error of a message that was begun is in the task,
  // which post() then finishes.
  bool try_inline(Task& task);
  // Posts the message. True: it has to be driven. False: it is finished already, perhaps with an
  // error. Throws as try_inline().
  bool post(const std::shared_ptr<Task>& task);
  // Advances what is in flight. True while a message is left.
  bool drive(Clock::time_point now, Driven& found);

 private:
  // `gated`: the sends, or the receives. Begins them in order, up to the first whose gate is
  // closed, because messages must not overtake each other.
  bool drive_gated(std::deque<std::shared_ptr<Task>>& gated, Driven& found);
  bool drive_begun(Clock::time_point now, Driven& found);
  // Throws Error when it was not posted; what fails later is `noticed`.
  State begin(Task& task, std::optional<Error>& noticed);
  // The same; true when it is finished already.
  bool begin(Task& task);
  Error not_begun(const Task& task, const Error& error);
  void ended_well(Task& task);
  // The message is done, or has failed with the error in `noticed`: finishes the task.
  void end(Task& task, const std::optional<Error>& noticed);

  Group& group_;
  Watchdog& watchdog_;
  Links& links_;
  std::vector<std::shared_ptr<Task>> begun_;  // used by the driving thread only

  std::mutex mutex_;                                        // guards what follows
  std::vector<std::shared_ptr<Task>> posted_;               // begun, and not taken over by drive() yet
  std::array<std::deque<std::shared_ptr<Task>>, 2> gated_;  // sends and receives that were not begun yet
};

}  // namespace altorch
