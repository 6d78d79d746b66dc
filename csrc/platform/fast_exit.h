// SPDX-License-Identifier: BSD-3-Clause
// Ends the process without running destructors, while a detached thread is still inside a library
// that cannot be interrupted. The library's global objects would otherwise be destroyed under that
// thread.
#pragma once

#include <atomic>

namespace altorch {

// To be called at exit, when threads have been stopped; it does not end the process itself. At the
// next exit(), skips everything that was registered before (destructors of global objects, atexit
// handlers) if a caller passed `forced`, or if a DetachedThread exists then. Flushes the standard
// streams and keeps the exit code. Call it as late as possible: the first call fixes its place
// among the exit handlers. Later calls can only set `forced`, which stays set. Thread rules: any
// thread.
void end_without_destructors(bool forced);

// Counts a thread that no other thread joins, or that may be inside such a library when the process
// ends. The constructor and the destructor may run on different threads.
class DetachedThread {
 public:
  DetachedThread() { number_.fetch_add(1); }
  ~DetachedThread() { number_.fetch_sub(1); }
  DetachedThread(const DetachedThread&) = delete;
  DetachedThread& operator=(const DetachedThread&) = delete;

  static int number() { return number_.load(); }

 private:
  static inline std::atomic<int> number_{0};
};

}  // namespace altorch
