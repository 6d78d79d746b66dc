// SPDX-License-Identifier: BSD-3-Clause
// Ends a wait of the program's main thread when a signal handler of the program has raised: Ctrl-C,
// for instance.
//
// Python runs signal handlers in its main thread, when that asks for them. While a call waits,
// nothing asks but this.
#pragma once

#include <chrono>
#include <optional>

#include "base/error.h"

namespace altorch {

// One wait of a caller's thread. Thread rules: one thread.
class SignalCheck {
 public:
  using Clock = std::chrono::steady_clock;
  // Runs pending handlers on the main thread. True: one has raised; what it raised is kept, and
  // thrown to the caller in place of the Error that ends the call (backend/c10d/errors.h). Takes
  // Python's lock.
  using Raised = bool (*)();
  // Null: signals end no wait.
  static void set(Raised raised);
  // Whether this thread runs a handler while a call waits: another call would wait behind that one.
  static bool is_in_handler();
  // Throws Error(kUnsupported) then.
  static void refuse_in_handler();

  // Every 250 ms, on the main thread only: Error(kInterrupted) once a handler has raised. Elsewhere
  // nothing.
  std::optional<Error> look(Clock::time_point now = Clock::now());

 private:
  Clock::time_point next_{};  // of the first look: not yet known
};

}  // namespace altorch
