// SPDX-License-Identifier: BSD-3-Clause
// The thread (al-trace) that waits for questions from outside. It answers them whatever the other
// threads do: in a call, inside MPI, with Python's lock.
//
// It sleeps in poll() until a client connects or SIGUSR1 arrives. It runs no Python, and does not
// wait for a client that does not read its answer. al-liveness cannot do this: it exists only if a
// group has peers. It also waits for the store when a rank has died, and that is when users want to
// ask.
#pragma once

#include <memory>

#include "platform/native_thread.h"

namespace altorch {

class TraceBoard;

// Thread rules: one thread at a time.
class TraceThread {
 public:
  // `board` is never destroyed. Throws Error(kTransport) if no thread can be started.
  TraceThread(const TraceBoard& board, bool takes_signal);
  // Waits for the end of the thread, a second at most.
  ~TraceThread();
  TraceThread(const TraceThread&) = delete;

 private:
  struct State;
  const std::shared_ptr<State> state_;  // the thread holds it, too
  NativeThread thread_;
};

}  // namespace altorch
