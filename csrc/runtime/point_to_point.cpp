// SPDX-License-Identifier: BSD-3-Clause
#include "runtime/point_to_point.h"

#include <utility>

namespace altorch {
namespace {

constexpr std::string_view kRoute = "message";

}  // namespace

PointToPoint::PointToPoint(Group& group, Watchdog& watchdog, Links& links)
    : group_(group), watchdog_(watchdog), links_(links) {}

bool PointToPoint::try_inline(Task& task) {
  try {
    group_.check_open();
    if (begin(task, task.error) == State::kDone) {
      ended_well(task);
      return true;
    }
  } catch (const Error& error) {
    throw not_begun(task, error);
  }
  task.begun = true;
  return false;
}

bool PointToPoint::post(const std::shared_ptr<Task>& task) {
  const bool gated = task->gate.flag != nullptr;
  try {
    if (task->begun && task->error) {
      end(*task, std::exchange(task->error, std::nullopt));
      return false;
    }
    if (!task->begun) group_.check_open();
    if (!task->begun && !gated && begin(*task)) return false;
  } catch (const Error& error) {
    throw not_begun(*task, error);
  }
  const std::lock_guard lock(mutex_);
  if (gated) {
    gated_[task->operation.kind == OpKind::kSend ? 0 : 1].push_back(task);
  } else {
    posted_.push_back(task);
  }
  return true;
}

// Unless it was only refused, something may have begun.
Error PointToPoint::not_begun(const Task& task, const Error& error) {
  const ErrorKind kind = error.kind();
  const bool refused =
      kind == ErrorKind::kInvalidArgument || kind == ErrorKind::kUnsupported || kind == ErrorKind::kClosed;
  return refused ? group_.failed(task.operation, error) : watchdog_.fail(task.operation, error, task.wait);
}

State PointToPoint::begin(Task& task, std::optional<Error>& noticed) {
  const Operation& operation = task.operation;
  task.wait = watchdog_.begin_wait(operation);
  group_.started(operation);
  const auto bytes = static_cast<std::size_t>(operation.count) * size_of(operation.dtype);
  Channel& channel = links_.channel();
  task.request.type = element_type(operation.dtype);
  if (operation.kind == OpKind::kSend) {
    channel.send(operation.input, bytes, operation.root, operation.tag, task.request);
  } else {
    channel.receive(operation.output, bytes, operation.root, operation.tag, task.request);
  }
  // It is posted: from here on an error is the task's, so that end() withdraws the message.
  State state = State::kFailed;
  try {
    state = channel.test({&task.request, 1}, noticed);
  } catch (...) {
    noticed = caught();
  }
  if (state == State::kFailed && !noticed)
    noticed = Error(ErrorKind::kInternal, "a message failed without a word");
  return state;
}

bool PointToPoint::begin(Task& task) {
  std::optional<Error> noticed;
  if (begin(task, noticed) == State::kPending) return false;
  end(task, noticed);
  return true;
}

void PointToPoint::ended_well(Task& task) {
  task.source = task.request.peer;
  group_.finished(task.operation, links_.transport(), kRoute, Clock::now() - task.wait.began);
}

void PointToPoint::end(Task& task, const std::optional<Error>& noticed) {
  if (!noticed) {
    ended_well(task);
    return task.finish();
  }
  task.source = task.request.peer;
  const bool buffers_free = links_.channel().cancel({&task.request, 1});
  if (!buffers_free) links_.mark_broken();
  task.finish(watchdog_.fail(task.operation, *noticed, task.wait), buffers_free);
}

bool PointToPoint::drive(Clock::time_point now, Driven& found) {
  // Neither of the two waits for the other: a peer's send may be what lets ours go on.
  const bool sends = drive_gated(gated_[0], found);
  const bool receives = drive_gated(gated_[1], found);
  return drive_begun(now, found) || sends || receives;
}

bool PointToPoint::drive_gated(std::deque<std::shared_ptr<Task>>& gated, Driven& found) {
  while (true) {
    bool closing = false;
    std::shared_ptr<Task> task;
    {
      const std::lock_guard lock(mutex_);
      if (gated.empty()) return false;
      task = gated.front();
      // First: a gate that opens because the group closes must not let the message go.
      const bool is_open = task->gate.open();
      closing = group_.is_closing();
      if (!closing && !is_open) {
        found.pends();
        return true;
      }
      gated.pop_front();
    }
    found.moved = true;
    try {
      if (closing) throw *group_.closed();
      if (begin(*task)) continue;
    } catch (...) {
      task->source = task->request.peer;
      task->finish(not_begun(*task, caught()));
      continue;
    }
    begun_.push_back(std::move(task));
  }
}

bool PointToPoint::drive_begun(Clock::time_point now, Driven& found) {
  {
    const std::lock_guard lock(mutex_);
    begun_.insert(begun_.end(), posted_.begin(), posted_.end());
    posted_.clear();
  }
  const WaitTarget target = begun_.empty() ? WaitTarget() : links_.channel().wait_target();
  for (std::size_t i = 0; i < begun_.size();) {
    const std::shared_ptr<Task> task = begun_[i];
    std::optional<Error> error;
    State state = State::kPending;
    try {
      state = links_.channel().test({&task->request, 1}, error);
      if (state == State::kPending) error = watchdog_.look_after(task->operation, task->wait, now);
    } catch (...) {
      error = caught();
    }
    if (state == State::kPending && !error) {
      found.pends(task->wait.spin_budget, target);
      ++i;
      continue;
    }
    found.moved = true;
    begun_.erase(begun_.begin() + static_cast<std::ptrdiff_t>(i));
    end(*task, error);
  }
  // Of a large message a part was copied, for instance.
  if (target && links_.channel().wait_target() != target) found.moved = true;
  return !begun_.empty();
}

}  // namespace altorch
