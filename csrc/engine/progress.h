// SPDX-License-Identifier: BSD-3-Clause
// The progress thread: one per process, it moves asynchronous operations on while their callers do something
// else.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "base/adaptive_wait.h"

namespace altorch {

class Communicator;
template <typename T>
class PerProcess;

// Thread rules: any thread. Sleeps while nothing is in flight, and naps while somebody who waits drives.
class ProgressThread {
 public:
  // The first call throws Error(kTransport) where no thread can be started: a group makes it, before its first call.
  static ProgressThread& instance();

  // Drives the communicator until nothing of it is in flight any more. What is not urgent may wait for a nap
  // to end: most messages are waited for at once, and then waking the thread costs more than the message.
  void watch(std::shared_ptr<Communicator> communicator, bool urgent);

  // While one lives, its owner polls what it waits for, and the thread keeps out of the way.
  class Helper {
   public:
    Helper() { instance().helpers_.fetch_add(1, std::memory_order_relaxed); }
    ~Helper() { instance().helpers_.fetch_sub(1, std::memory_order_relaxed); }
    Helper(const Helper&) = delete;
  };

  // False in a child that was forked while its parent had a group: what that shares with other ranks is not the child's.
  static bool usable();
  // What each group has as long as it lives.
  class Use {
   public:
    Use();
    ~Use();
    Use(const Use&) = delete;
    static int living();  // groups of this process
  };

 private:
  friend class PerProcess<ProgressThread>;
  struct Entry {
    std::shared_ptr<Communicator> communicator;
    std::uint64_t calls;  // of watch(): an entry that was watched again during a round stays
  };
  ProgressThread();
  void loop();
  std::vector<Entry> next_round(AdaptiveWait& wait);
  // Until the one thing that is awaited is there, or somebody watches another.
  bool doze(const Awaited& awaited, std::chrono::microseconds most);

  std::mutex mutex_;
  std::condition_variable wake_;
  std::vector<Entry> watched_;
  bool sleeping_ = false;    // until it is woken
  bool napping_ = false;     // for a while
  std::uint64_t calls_ = 0;  // of watch(), since the round began
  Awaited dozing_for_;
  std::atomic<int> helpers_{0};
};

}  // namespace altorch
