// SPDX-License-Identifier: BSD-3-Clause
// Collectives of a group on host memory: one after another, in the order of the calls. A synchronous one runs
// on the calling thread where nothing is under way; the others wait here until somebody drives them.
//
// Thread rules: any thread, drive() by one at a time.
#pragma once

#include <deque>
#include <memory>
#include <mutex>

#include "base/adaptive_wait.h"
#include "engine/collective.h"
#include "engine/group.h"
#include "engine/task.h"
#include "engine/watchdog.h"

namespace altorch {

class CollectiveQueue {
 public:
  using Clock = std::chrono::steady_clock;

  CollectiveQueue(Group& group, Watchdog& watchdog, Links& links);

  // True where nothing is under way: then the caller has the next place, and must carry_out().
  bool claim();
  struct Outcome {
    std::optional<Error> error;
    bool buffers_free = true;  // false: they must be kept until the process ends
    bool others_wait = false;  // somebody has queued behind it meanwhile
  };
  Outcome carry_out(const Operation& operation);
  // As carry_out(), for a caller who does not wait: for a few microseconds. Done, it is never finish()ed; where it is
  // not, it must be passed on, with the error that it may have got, to whoever drives.
  State attempt(Task& task, bool& others_wait);
  void pass_on(std::shared_ptr<Task> task);
  void push(std::shared_ptr<Task> task);
  // Moves on what is queued; true while something is left.
  bool drive(Clock::time_point now, Driven& found);

 private:
  // The task at the head, begun if it may begin; null: nothing can be done now. `error`: it is not to begin.
  std::shared_ptr<Task> head(bool& left, std::optional<Error>& error);
  void start(const Operation& operation);
  // Where claim() has taken the place: begins the call and moves it on, for `most`. Failed, it is withdrawn.
  State run(const Operation& operation, Wait& wait, Clock::duration most, std::optional<Error>& error,
            bool& buffers_free);
  // It is done. True where somebody has queued meanwhile.
  bool end(const Operation& operation, const Wait& wait);
  // Where claim() has taken it. True where somebody has queued meanwhile.
  bool leave_place();
  // It has failed: what is in flight is withdrawn if that can be, and the group closed.
  Error fail(const Operation& operation, const Error& noticed, const Wait& wait, bool& buffers_free);

  Group& group_;
  Watchdog& watchdog_;
  Links& links_;
  const Rules routes_;
  Collective collective_;  // of who drives, or while inline_running_ of who carries out
  bool head_running_ = false;

  std::mutex mutex_;  // guards what follows
  bool inline_running_ = false;
  std::deque<std::shared_ptr<Task>> queue_;  // the head may be running
};

}  // namespace altorch
