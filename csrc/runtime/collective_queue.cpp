// SPDX-License-Identifier: BSD-3-Clause
#include "runtime/collective_queue.h"

#include "base/adaptive_wait.h"
#include "platform/signal_check.h"
#include "runtime/fingerprint.h"

namespace altorch {
namespace {

constexpr std::chrono::milliseconds kBeforeLooks{50};  // of waiting
// A peer that calls at the same time is there by then; waking the progress thread takes about as
// long.
constexpr std::chrono::microseconds kAttempt{10};

}  // namespace

CollectiveQueue::CollectiveQueue(Group& group, Watchdog& watchdog, Links& links)
    : group_(group), watchdog_(watchdog), links_(links), collective_(links, rules_) {}

bool CollectiveQueue::reserve() {
  const std::lock_guard lock(mutex_);
  if (inline_running_ || !queue_.empty()) return false;
  return inline_running_ = true;
}

void CollectiveQueue::push(std::shared_ptr<Task> task) {
  const std::lock_guard lock(mutex_);
  queue_.push_back(std::move(task));
}

void CollectiveQueue::start(const Operation& operation) {
  collective_.start(operation, group_.started(operation).fingerprint);
}

Error CollectiveQueue::fail(const Operation& operation, const Error& noticed, const Wait& wait,
                            bool& buffers_free) {
  buffers_free = collective_.cancel();
  if (!buffers_free) links_.mark_broken();
  return watchdog_.fail(operation, noticed, wait);
}

State CollectiveQueue::run(const Operation& operation, Wait& wait, Clock::duration most,
                           std::optional<Error>& error, bool& buffers_free) {
  const bool to_the_end = most == Clock::duration::max();  // else a sleep might be longer
  State state = State::kPending;
  try {
    group_.check_open();  // the collective that had the place before may have closed it
    start(operation);
    AdaptiveWait idle;
    SignalCheck signals;
    Clock::duration idled{0}, waited{0};  // before the last step; altogether
    while (!error && waited < most) {
      bool moved = false;
      state = collective_.advance(error, moved);
      if (state != State::kPending) break;
      if (moved) {
        idled += idle.waited();
        idle.reset();
      }
      idle.pause(wait.spin_budget, to_the_end ? collective_.wait_target() : WaitTarget());
      waited = idled + idle.waited();
      if (waited <= kBeforeLooks) continue;
      const auto now = Clock::now();
      error = watchdog_.look_after(operation, wait, now);
      if (!error && to_the_end) error = signals.look(now);
    }
  } catch (...) {
    error = caught();
  }
  if (!error) return state;
  error = fail(operation, *error, wait, buffers_free);
  return State::kFailed;
}

bool CollectiveQueue::end(const Operation& operation, const Wait& wait) {
  const auto took = Clock::now() - wait.began;
  const std::string_view route = collective_.route().name;  // before the next one takes another
  const bool others_wait = leave_place();
  group_.finished(operation, links_.transport(), route, took);
  return others_wait;
}

bool CollectiveQueue::leave_place() {
  const std::lock_guard lock(mutex_);
  inline_running_ = false;
  return !queue_.empty();
}

CollectiveQueue::Outcome CollectiveQueue::run_inline(const Operation& operation) {
  Outcome outcome;
  Wait wait = watchdog_.begin_wait(operation);
  const State state = run(operation, wait, Clock::duration::max(), outcome.error, outcome.buffers_free);
  outcome.others_wait = state == State::kDone ? end(operation, wait) : leave_place();
  return outcome;
}

State CollectiveQueue::try_inline(Task& task, bool& others_wait) {
  task.wait = watchdog_.begin_wait(task.operation);
  const State state = run(task.operation, task.wait, kAttempt, task.error, task.buffers_free);
  if (state == State::kDone) others_wait = end(task.operation, task.wait);
  return state;
}

void CollectiveQueue::enqueue(std::shared_ptr<Task> task) {
  if (task->error) {
    leave_place();
    auto error = std::move(task->error);
    return task->finish(std::move(error), task->buffers_free);
  }
  const std::lock_guard lock(mutex_);
  queue_.push_front(std::move(task));
  head_running_ = true;
  inline_running_ = false;
}

std::shared_ptr<Task> CollectiveQueue::head(bool& left, std::optional<Error>& error) {
  std::shared_ptr<Task> task;
  {
    const std::lock_guard lock(mutex_);
    left = !queue_.empty();
    if (!left || inline_running_) return nullptr;  // the calling thread then wakes the progress thread
    task = queue_.front();
  }
  if (head_running_) return task;
  // First: a gate that opens because the group closes must not let the call begin.
  const bool is_open = task->gate.open();
  if (group_.is_closing()) {
    error = group_.closed();
  } else if (!is_open) {
    return nullptr;
  }
  // What waits for a GPU has its time from there on.
  task->wait = task->gate.flag ? watchdog_.begin_wait(task->operation)
                               : watchdog_.begin_again(task->operation, task->wait);
  return task;
}

bool CollectiveQueue::drive(Clock::time_point now, Driven& found) {
  while (true) {
    bool left = false;
    std::optional<Error> error;
    const auto task = head(left, error);
    if (!task) {
      if (left) found.pends();
      return left;
    }
    State state = State::kPending;
    try {
      if (!head_running_ && !error) {
        head_running_ = true;
        start(task->operation);
      }
      if (!error) state = collective_.advance(error, found.moved);
      if (state == State::kPending && !error) error = watchdog_.look_after(task->operation, task->wait, now);
    } catch (...) {
      error = caught();
    }
    if (state == State::kPending && !error) {
      found.pends(task->wait.spin_budget, collective_.wait_target());
      return true;
    }
    found.moved = true;
    bool buffers_free = true;
    if (error) {
      error = head_running_ ? fail(task->operation, *error, task->wait, buffers_free)
                            : watchdog_.fail(task->operation, *error, task->wait);
    } else {
      group_.finished(task->operation, links_.transport(), collective_.route().name,
                      Clock::now() - task->wait.began);
    }
    head_running_ = false;
    {
      const std::lock_guard lock(mutex_);
      queue_.pop_front();
    }
    task->finish(std::move(error), buffers_free);
  }
}

}  // namespace altorch
