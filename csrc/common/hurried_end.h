// A process that ends while a thread is still in a library that cannot be hurried: what destroys that library's global objects
// at exit would take them from under it.
#pragma once

#include <atomic>

namespace altorch {

// At the next exit(), if then `forced` was ever asked for or threads are left behind: nothing that was registered before is run
// (destructors of global objects, atexit handlers), but standard output is flushed, and the exit code is that of exit(). To be
// called as late as possible. Any thread, any number of times.
void end_without_destructors(bool forced);

// Threads that nobody waits for any more, or that may be in such a library when the process ends. Counted from the constructor to the destructor, which may be another thread's.
class LeftBehind {
 public:
  LeftBehind() { number_.fetch_add(1); }
  ~LeftBehind() { number_.fetch_sub(1); }
  LeftBehind(const LeftBehind&) = delete;
  LeftBehind& operator=(const LeftBehind&) = delete;

  static int number() { return number_.load(); }

 private:
  static inline std::atomic<int> number_{0};
};

}  // namespace altorch
