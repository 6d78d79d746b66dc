// SPDX-License-Identifier: BSD-3-Clause
// Marks a call into a library that cannot be interrupted, and that returns at once unless the
// library is at fault. health/stuck_calls.h looks for threads that do not come back from one.
#pragma once

#include <atomic>
#include <compare>
#include <cstdint>
#include <mutex>
#include <vector>

#include "base/per_process.h"

namespace altorch {

// Thread rules: one thread; calls do not nest.
class ForeignCall {
 public:
  // A rank as `watch` numbers it (rendezvous/peer_deaths.h); without a watch, no rank.
  struct Peer {
    const void* watch = nullptr;
    int rank = -1;
    auto operator<=>(const Peer&) const = default;
  };
  // `is_watched`: false marks nothing. `peer`: the call may block while that rank lives.
  explicit ForeignCall(bool is_watched) : ForeignCall(is_watched, Peer()) {}
  ForeignCall(bool is_watched, const Peer& peer) : own_(is_watched ? &own() : nullptr) {
    if (own_) {
      own_->watch.store(peer.watch, std::memory_order_relaxed);
      own_->rank.store(peer.rank, std::memory_order_relaxed);
    }
    step();
  }
  ~ForeignCall() { step(); }
  ForeignCall(const ForeignCall&) = delete;
  ForeignCall& operator=(const ForeignCall&) = delete;

  // `number`: no other call of the thread has it.
  struct Call {
    const void* thread;
    std::uint64_t number;
    Peer peer;
    auto operator<=>(const Call&) const = default;
  };
  // What the threads of this process are in. Any thread. A forked child does not know the threads
  // of its parent.
  static std::vector<Call> all() {
    std::vector<Call> calls;
    Threads& known = PerProcess<Threads>::get();
    const std::lock_guard lock(known.mutex);
    for (const Thread* each : known.threads)
      if (const auto number = each->begun.load(std::memory_order_relaxed); number % 2 != 0)
        calls.push_back(
            {each,
             number,
             {each->watch.load(std::memory_order_relaxed), each->rank.load(std::memory_order_relaxed)}});
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
    std::atomic<const void*> watch{nullptr};
    std::atomic<int> rank{-1};
  };

  static Thread& own() {
    static thread_local Thread thread;
    return thread;
  }
  void step() {
    if (own_) own_->begun.store(own_->begun.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  }

  Thread* const own_;
};

}  // namespace altorch
