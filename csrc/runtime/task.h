// SPDX-License-Identifier: BSD-3-Clause
// An operation that outlives the call that asked for it: asynchronous collectives and all messages.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <optional>
#include <vector>

#include "base/adaptive_wait.h"
#include "base/flag.h"
#include "base/operation.h"
#include "transports/channel.h"

namespace altorch {

// The state of one wait: how long it has lasted, and when the watchdog checks again whether it can
// end.
struct Wait {
  std::chrono::steady_clock::time_point issued{};  // what the deadline counts from
  std::chrono::steady_clock::time_point began{};
  std::chrono::steady_clock::time_point next_look{};
  AdaptiveWait::Clock::duration spin_budget = AdaptiveWait::kSpinBudget;  // for its size
  int looks = 0;
  int suspicions = 0;  // looks in a row at which a peer was dead; its last message may still be on its way
  int next_query = 0;  // the look at which ranks past this operation are asked what they called
  bool told_by_peer = false;  // a peer has failed, and has told all ranks already
  bool written_down = false;  // that this rank waits
};

// The exception that is being thrown, as an Error. No exception may leave the threads that drive
// operations.
inline Error caught() {
  try {
    throw;
  } catch (const Error& error) {
    return error;
  } catch (const std::exception& error) {
    return Error(ErrorKind::kInternal, error.what());
  } catch (...) {
    return Error(ErrorKind::kInternal, "something that is no exception was thrown");
  }
}

// Thread rules: one thread at a time drives a task (the communicator sees to that). Any thread may
// ask whether the task is finished, and may then read `error` and `source`.
struct Task {
  Operation operation;
  std::vector<std::int64_t> input_counts, output_counts;  // what the operation's spans point to
  Gate gate;           // the task begins only when it is open; so do tasks submitted after it
  bool begun = false;  // on the thread that called
  Wait wait;

  Request request;  // messages only
  int source = -1;  // group rank of the sender of a received message

  // Called once, by the thread that finishes the task, before waiting threads see it finished. Must
  // not block.
  std::function<void(Task&)> on_done;
  std::optional<Error> error;
  bool buffers_free = true;  // false: the buffers must be kept until the process ends

  bool finished() const { return finished_.load(std::memory_order_acquire); }
  void finish(std::optional<Error> failed = std::nullopt, bool free = true) {
    error = std::move(failed);
    buffers_free = free;
    if (on_done) {
      const auto callback = std::move(on_done);
      on_done = nullptr;
      callback(*this);
    }
    finished_.store(true, std::memory_order_release);
  }

 private:
  std::atomic<bool> finished_{false};
};

}  // namespace altorch
