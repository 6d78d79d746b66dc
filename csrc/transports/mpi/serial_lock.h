// The lock around every MPI call at MPI_THREAD_SERIALIZED.
//
// Almost always one thread is in MPI, for well under a microsecond, so an uncontended pass must cost no more
// than an atomic exchange; a waiting thread spins briefly and then yields, because the holder may need its
// core.
#pragma once

#include <sched.h>

#include <atomic>

namespace altorch {

class SerialLock {
 public:
  // A disabled lock does nothing: MPI_THREAD_MULTIPLE, or one calling thread.
  void enable(bool enabled) { enabled_ = enabled; }

  void lock() {
    if (!enabled_) return;
    int polls = 0;
    while (locked_.exchange(true, std::memory_order_acquire)) {
      while (locked_.load(std::memory_order_relaxed)) {
        if (++polls > kSpins) sched_yield();
      }
    }
  }
  void unlock() {
    if (enabled_) locked_.store(false, std::memory_order_release);
  }

 private:
  static constexpr int kSpins = 64;
  bool enabled_ = true;
  std::atomic<bool> locked_{false};
};

}  // namespace altorch
