// SPDX-License-Identifier: BSD-3-Clause
// The lock around every MPI call at MPI_THREAD_SERIALIZED.
//
// Almost always one thread is in MPI, for well under a microsecond, so an uncontended pass must
// cost no more than an atomic exchange; a waiting thread spins briefly and then yields, because the
// holder may need its core. MpiEntry takes it (mpi_entry.h).
#pragma once

#include <sched.h>

#include <atomic>

namespace altorch {

class SerialLock {
 public:
  // A disabled lock does nothing: MPI_THREAD_MULTIPLE, or one calling thread.
  void enable(bool enabled) { enabled_ = enabled; }
  bool enabled() const { return enabled_; }

  // False, without the lock, when its holder will not come back from MPI.
  [[nodiscard]] bool lock() {
    if (!enabled_) return true;
    int polls = 0;
    while (locked_.exchange(true, std::memory_order_acquire)) {
      while (locked_.load(std::memory_order_relaxed)) {
        if (++polls <= kSpins) continue;
        if (held_up_.load(std::memory_order_acquire)) return false;
        sched_yield();
      }
    }
    return true;
  }
  void unlock() {
    if (enabled_) locked_.store(false, std::memory_order_release);
  }
  // Called when the holder blocks in MPI for a rank that is lost: no thread waits for the lock any
  // more.
  void hold_up() { held_up_.store(true, std::memory_order_release); }

 private:
  static constexpr int kSpins = 64;
  bool enabled_ = true;
  std::atomic<bool> locked_{false};
  std::atomic<bool> held_up_{false};
};

}  // namespace altorch
