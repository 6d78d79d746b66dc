// SPDX-License-Identifier: BSD-3-Clause
// The thread (al-trace) that waits for questions from outside, and answers them whatever the others are at: in a call, inside
// MPI, with Python's lock.
//
// It sleeps in poll() until somebody connects or sends SIGUSR1. It runs no Python, and waits for nobody who does not read what
// he asked for. Why not al-liveness: that one is there only where a group has peers, and waits for the store when somebody has
// died, which is just when one wants to ask.
#pragma once

#include <memory>

#include "platform/native_thread.h"

namespace altorch {

class TraceBoard;

// Thread rules: one thread at a time.
class TraceThread {
 public:
  // `board` is never destroyed. Throws Error(kTransport) where there can be no more threads.
  TraceThread(const TraceBoard& board, bool takes_signal);
  // Waits for its end, a second at most.
  ~TraceThread();
  TraceThread(const TraceThread&) = delete;

 private:
  struct State;
  const std::shared_ptr<State> state_;  // the thread's too
  NativeThread thread_;
};

}  // namespace altorch
