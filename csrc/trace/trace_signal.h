// SPDX-License-Identifier: BSD-3-Clause
// Handles SIGUSR1, unless the program handles or ignores it: wakes the thread that reports.
//
// The handler only sets a flag and writes to an eventfd. Thread rules: one thread at a time.
#pragma once

namespace altorch {

class TraceSignal {
 public:
  // `wake_fd`: an eventfd that is never closed. Does nothing where the program has a handler of its
  // own, or ignores the signal.
  static void take(int wake_fd);
  // Restores the default action, unless the program has set another handler meanwhile.
  static void give_back();
  // Whether the signal has come since the last call. Any thread.
  static bool has_come();
};

}  // namespace altorch
