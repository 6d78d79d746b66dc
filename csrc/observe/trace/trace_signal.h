// SPDX-License-Identifier: BSD-3-Clause
// SIGUSR1, for as long as the program leaves it to us: rings the bell of the thread that reports.
//
// The handler does nothing but write to that eventfd. Thread rules: one thread at a time.
#pragma once

namespace altorch {

class TraceSignal {
 public:
  // `bell`: an eventfd that is never closed. Does nothing where the program has a handler of its own, or ignores the
  // signal.
  static void take(int bell);
  // Gives it back, unless somebody else has taken it meanwhile.
  static void give_back();
  // Whether it has come since the last time. Any thread.
  static bool has_come();
};

}  // namespace altorch
