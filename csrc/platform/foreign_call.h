// SPDX-License-Identifier: BSD-3-Clause
// Marks a call into a library that cannot be interrupted, and that returns at once unless the
// library is at fault. health/stuck_calls.h looks for threads that do not come back from one.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <utility>
#include <vector>

#include "base/per_process.h"

namespace altorch {

// Thread rules: one thread; calls do not nest.
class ForeignCall {
 public:
  // `is_watched`: false marks nothing.
  explicit ForeignCall(bool is_watched) : begun_(is_watched ? &own().begun : nullptr) { step(); }
  ~ForeignCall() { step(); }
  ForeignCall(const ForeignCall&) = delete;
  ForeignCall& operator=(const ForeignCall&) = delete;

  // The thread, and a number that no other call of this process has.
  using Call = std::pair<const void*, std::uint64_t>;
  // What the threads of this process are in. Any thread. A forked child does not know the threads
  // of its parent.
  static std::vector<Call> all() {
    std::vector<Call> calls;
    Threads& known = PerProcess<Threads>::get();
    const std::lock_guard lock(known.mutex);
    for (const Thread* each : known.threads)
      if (const auto number = each->begun.load(std::memory_order_relaxed); number % 2 != 0)
        calls.emplace_back(each, number);
    return calls;
  }

 private:
  struct Thread;
  struct Threads {
    std::mutex mutex;
    std::vector<const Thread*> threads;
  };
  struct Thread {
    Thread() {
      Threads& known = PerProcess<Threads>::get();
      const std::lock_guard lock(known.mutex);
      known.threads.push_back(this);
    }
    ~Thread() {
      Threads* const known = PerProcess<Threads>::if_made();
      if (!known) return;
      const std::lock_guard lock(known->mutex);
      std::erase(known->threads, this);
    }
    static std::uint64_t first() {
      static std::atomic<std::uint64_t> threads{0};
      return ++threads << 32;
    }
    std::atomic<std::uint64_t> begun{first()};  // odd: in a call
  };

  static Thread& own() {
    static thread_local Thread thread;
    return thread;
  }
  void step() {
    if (begun_) begun_->store(begun_->load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  }

  std::atomic<std::uint64_t>* const begun_;
};

}  // namespace altorch
