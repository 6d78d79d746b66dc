// SPDX-License-Identifier: BSD-3-Clause
// Runs the host-memory collectives of a group one after another, in the order of the calls. If no
// collective is in flight, the calling thread runs a synchronous one itself, and tries a small
// asynchronous one for a few microseconds. The others wait in the queue until a thread calls
// drive(): the progress thread, or a thread that waits for a call.
//
// Thread rules: any thread; drive() by one thread at a time.
#pragma once

#include <deque>
#include <memory>
#include <mutex>

#include "base/adaptive_wait.h"
#include "runtime/collective.h"
#include "runtime/group.h"
#include "runtime/task.h"
#include "runtime/watchdog.h"

namespace altorch {

class CollectiveQueue {
 public:
  using Clock = std::chrono::steady_clock;

  CollectiveQueue(Group& group, Watchdog& watchdog, Links& links);

  const Rules& rules() const { return rules_; }
  const Collective& collective() const { return collective_; }
  // True: no collective is in flight. The caller then has the next place, and must call
  // run_inline() or try_inline().
  bool reserve();
  struct Outcome {
    std::optional<Error> error;
    bool buffers_free = true;  // false: they must be kept until the process ends
    bool others_wait = false;  // other collectives were queued meanwhile
  };
  // Blocks until the call is done or has failed. Throws nothing: the error has its label, and a
  // failed call has closed the group (kInterrupted: a signal handler raised). If `others_wait`, the
  // caller must wake the progress thread.
  Outcome run_inline(const Operation& operation);
  // As run_inline(), but only for a few microseconds, for a caller that does not wait. On kDone the
  // task is done, and Task::finish() is never called. Otherwise the caller must enqueue() the task,
  // with the error that it may have got: enqueue() finishes a failed task, and leaves any other to
  // the thread that drives.
  State try_inline(Task& task, bool& others_wait);
  // After try_inline() that was not kDone: leaves the place. The task stays the first, or, if it
  // has failed, is finished here (Task::finish() runs in this thread). The caller must wake the
  // progress thread.
  void enqueue(std::shared_ptr<Task> task);
  // After reserve() returned false: appends the task, whose wait.issued the caller has set to now.
  // Does not check that the group is open. The caller must wake the progress thread.
  void push(std::shared_ptr<Task> task);
  // Advances the queued tasks, and finishes them, also with errors; throws nothing. Does not wait
  // for peers, but a look may ask the store, and a failure or a deadline may take seconds. True
  // while a task is left. `found`: whether anything moved, and how to wait.
  bool drive(Clock::time_point now, Driven& found);

 private:
  // The task at the head of the queue, if it runs or may begin; null: no task can be advanced now.
  // `left`: a task is queued. `error`: why the task must not begin.
  std::shared_ptr<Task> head(bool& left, std::optional<Error>& error);
  void start(const Operation& operation);
  // After reserve(): begins the call and advances it, for at most `most`. If the call fails, it is
  // cancelled and the group is closed.
  State run(const Operation& operation, Wait& wait, Clock::duration most, std::optional<Error>& error,
            bool& buffers_free);
  // The call is done: leaves the place and reports the call. True: other collectives were queued
  // meanwhile.
  bool end(const Operation& operation, const Wait& wait);
  // Leaves the place that reserve() has taken. True: other collectives were queued meanwhile.
  bool leave_place();
  // The call has failed: cancels what is in flight, if that is possible, and closes the group.
  Error fail(const Operation& operation, const Error& noticed, const Wait& wait, bool& buffers_free);

  Group& group_;
  Watchdog& watchdog_;
  Links& links_;
  const Rules rules_;
  Collective collective_;  // used by the driving thread; while inline_running_, by the calling thread
  bool head_running_ = false;

  std::mutex mutex_;  // guards what follows
  bool inline_running_ = false;
  std::deque<std::shared_ptr<Task>> queue_;  // the head may be running
};

}  // namespace altorch
