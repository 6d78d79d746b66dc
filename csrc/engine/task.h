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
#include "engine/operation.h"
#include "transports/channel.h"

namespace altorch {

// How long something has been waited for, and when to look again whether it is in vain.
struct Wait {
  std::chrono::steady_clock::time_point issued{};  // what the deadline counts from
  std::chrono::steady_clock::time_point began{};
  std::chrono::steady_clock::time_point next_look{};
  AdaptiveWait::Clock::duration patience = AdaptiveWait::kPatience;  // for its size
  int looks = 0;
  bool suspicion = false;  // a peer was found dead at the last look; its last message may still be on its way
  int next_question = 0;   // the look at which whoever has passed this operation is asked what it called
  bool told_by_peer = false;  // the failure is a peer's, which has told everybody already
  bool written_down = false;  // that this rank waits
};

// Whatever is being thrown, as an error: nothing may pass through the threads that drive operations.
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

// Thread rules: one thread at a time drives a task (the communicator sees to that); anybody may ask whether
// it is finished, and read `error` and `source` once it is.
struct Task {
  Operation operation;
  std::vector<std::int64_t> input_counts, output_counts;  // what the operation's spans point to
  Gate gate;           // it does not begin before; nor does what was submitted after it
  bool begun = false;  // on the thread that called
  Wait wait;

  Request request;  // messages only
  int source = -1;  // rank in the group of whom a message came from

  // Called once, by whichever thread finishes the task, before waiters see it finished. Must not block.
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
