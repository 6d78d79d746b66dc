// The progress thread: one per process, it moves asynchronous operations on while their callers do something else.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

namespace altorch {

class Communicator;

// Thread rules: any thread. Sleeps while nothing is in flight, and naps while somebody who waits drives.
class ProgressThread {
 public:
  static ProgressThread& instance();

  // Drives the communicator until nothing of it is in flight any more.
  void watch(std::shared_ptr<Communicator> communicator);

  // While one lives, its owner polls what it waits for, and the thread keeps out of the way.
  class Helper {
   public:
    Helper() { instance().helpers_.fetch_add(1, std::memory_order_relaxed); }
    ~Helper() { instance().helpers_.fetch_sub(1, std::memory_order_relaxed); }
    Helper(const Helper&) = delete;
  };

  // False in a forked child: its threads are gone, and MPI is not its own.
  static bool usable();

 private:
  ProgressThread();
  void loop();

  std::mutex mutex_;
  std::condition_variable wake_;
  struct Entry {
    std::shared_ptr<Communicator> communicator;
    std::uint64_t calls;  // of watch(): an entry that was watched again during a round stays
  };
  std::vector<Entry> watched_;
  bool sleeping_ = false;
  std::atomic<int> helpers_{0};
  std::thread thread_;
};

}  // namespace altorch
