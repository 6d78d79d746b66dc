// SPDX-License-Identifier: BSD-3-Clause
#include "runtime/communicator.h"

#include "base/adaptive_wait.h"
#include "platform/signal_check.h"
#include "runtime/progress.h"

namespace altorch {
namespace {

// Beyond, the memory traffic of a call is not for a thread that has something else to do.
constexpr std::int64_t kMostAttempted = 64 << 10;

}  // namespace

Communicator::Communicator(Membership membership, std::unique_ptr<Links> links)
    : Group(std::move(membership), links->channel().rank(), links->channel().size()),
      links_(std::move(links)),
      watchdog_(*this),
      collectives_(*this, watchdog_, *links_),
      messages_(*this, watchdog_, *links_) {}

Communicator::~Communicator() {
  if (is_tainted()) links_->mark_tainted();
}

OneSided& Communicator::one_sided(std::unique_ptr<OneSided> (*make)()) {
  std::call_once(one_sided_once_, [&] {
    one_sided_owner_ = make();
    one_sided_.store(one_sided_owner_.get(), std::memory_order_release);
  });
  return *one_sided_owner_;
}

Communicator::Place Communicator::reserve(const Operation& operation) {
  Place place;
  place.group = this;
  place.operation = &operation;
  try {
    check_open();
  } catch (const Error& error) {
    throw failed(operation, error);
  }
  if (!collectives_.reserve()) {
    place.queued = std::make_shared<Task>();
    place.queued->operation = operation;
    submit(place.queued);
  }
  return place;
}

void Communicator::Place::run(bool& buffers_free) {
  buffers_free = true;
  if (queued) {
    try {
      group->wait(*queued, std::chrono::milliseconds(0));
    } catch (...) {  // interrupted: the group is closed, and the call cancelled with it
      buffers_free = queued->finished() && queued->buffers_free;
      throw;
    }
    buffers_free = queued->buffers_free;
    if (queued->error) throw *queued->error;
    return;
  }
  const auto outcome = group->collectives_.run_inline(*operation);
  if (outcome.others_wait) ProgressThread::instance().watch(group->shared_from_this(), true);
  buffers_free = outcome.buffers_free;
  if (outcome.error) throw *outcome.error;
}

bool Communicator::try_inline(Task& task) {
  const bool serves = payload_bytes(task.operation, size()) <= kMostAttempted && ProgressThread::usable();
  if (!serves || is_closing() || !collectives_.reserve()) return false;
  bool others_wait = false;
  task.begun = true;
  const State state = collectives_.try_inline(task, others_wait);
  if (others_wait) ProgressThread::instance().watch(shared_from_this(), true);
  return state == State::kDone;
}

void Communicator::submit(std::shared_ptr<Task> task) {
  if (task->begun) {
    collectives_.enqueue(std::move(task));
    return ProgressThread::instance().watch(shared_from_this(), true);
  }
  task->wait.issued = std::chrono::steady_clock::now();
  try {
    check_open();
  } catch (const Error& error) {
    throw failed(task->operation, error);
  }
  collectives_.push(std::move(task));
  ProgressThread::instance().watch(shared_from_this(), true);
}

bool Communicator::attempt_message(Task& task) {
  issue(task.operation);
  return messages_.try_inline(task);
}

void Communicator::post(std::shared_ptr<Task> task) {
  if (!task->begun) issue(task->operation);
  if (messages_.post(task)) ProgressThread::instance().watch(shared_from_this(), task->gate.flag != nullptr);
}

bool Communicator::wait(const Task& task, std::chrono::milliseconds timeout) {
  if (task.finished()) return true;
  try {
    check_own_process();
  } catch (const Error& error) {
    throw explain(task.operation, error);
  }
  const ProgressThread::Helper helper;
  const auto began = std::chrono::steady_clock::now();
  AdaptiveWait wait;
  SignalCheck signals;
  std::optional<Error> interruption;
  while (!task.finished()) {
    Driven found;
    drive(found);
    if (found.moved) wait.reset();
    if (task.finished()) break;
    wait.pause(found.spin_budget, found.wait_target());
    const auto now = std::chrono::steady_clock::now();
    // The task is failed with the group, and has let go of its buffers before the caller hears of
    // the signal.
    if (!interruption) {
      if (const auto signal = signals.look(now)) interruption = abort_call(task.operation, *signal);
    }
    if (!interruption && timeout.count() > 0 && now - began > timeout) return false;
  }
  if (interruption) throw *interruption;
  return true;
}

bool Communicator::drive(Driven& found) {
  if (!ProgressThread::usable()) return false;  // what is under way is the parent's
  const std::unique_lock driving(drive_mutex_, std::try_to_lock);
  if (!driving) {  // another thread drives
    found.pends();
    return true;
  }
  const auto now = std::chrono::steady_clock::now();
  const bool collectives = collectives_.drive(now, found);
  const bool messages = messages_.drive(now, found);
  OneSided* const one_sided = one_sided_.load(std::memory_order_acquire);
  const bool accesses = one_sided && one_sided->drive(now, found);
  return collectives || messages || accesses;
}

}  // namespace altorch
