// SPDX-License-Identifier: BSD-3-Clause
// The progress thread, one per process. It advances asynchronous operations while their callers do
// something else.
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

// The thread sleeps while nothing is in flight. It sleeps briefly while another thread waits,
// because that thread drives (Helper). Thread rules: any thread.
class ProgressThread {
 public:
  // The first call throws Error(kTransport) if no thread can be started. A group is made only after
  // that call.
  static ProgressThread& instance();

  // Drives the communicator until it has nothing in flight. If it is not `urgent`, the thread may
  // finish a short sleep first: most callers wait for their message at once, and then waking the
  // thread costs more than the message.
  void watch(std::shared_ptr<Communicator> communicator, bool urgent);

  // While a Helper lives, its owner polls what it waits for, and the progress thread keeps out of
  // the way.
  class Helper {
   public:
    Helper() { instance().helpers_.fetch_add(1, std::memory_order_relaxed); }
    ~Helper() { instance().helpers_.fetch_sub(1, std::memory_order_relaxed); }
    Helper(const Helper&) = delete;
  };

  // False in a child that was forked while its parent had a group: what the group shares with other
  // ranks is the parent's.
  static bool usable();
  // Every group holds a Use as long as it lives.
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
  // Sleeps until `awaited` is raised, another thread calls watch(), or `most` has passed.
  bool sleep_until_raised(const WaitTarget& awaited, std::chrono::microseconds most);

  std::mutex mutex_;
  std::condition_variable wake_;
  std::vector<Entry> watched_;
  bool sleeping_ = false;        // until it is woken
  bool sleeps_briefly_ = false;  // for a while
  std::uint64_t calls_ = 0;      // of watch(), since the round began
  WaitTarget dozing_for_;
  std::atomic<int> helpers_{0};
};

}  // namespace altorch
