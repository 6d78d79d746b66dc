// SPDX-License-Identifier: BSD-3-Clause
// Two threads that look after the groups and windows that have something in flight on a GPU, ten times a second: the host
// does not wait for the device, so somebody else must see that a peer is lost or a deadline has passed. One
// asks CUDA how far the device is; the other, which ends what hangs, never calls CUDA, for that may hold up
// every caller while what hangs hangs. Asleep while nothing is in flight.
#pragma once

#include <atomic>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <vector>

#include "engine/gpu/watched.h"

namespace altorch::backend {

// Thread rules: any thread.
class CudaWatch {
 public:
  // Throws Error(kTransport) where its threads cannot be started.
  static CudaWatch& instance();

  void add(const std::shared_ptr<Watched>& group);
  // Something was launched. Costs one atomic read while the watch is awake.
  void wake();
  // At exit, before CUDA goes: no look is under way when it returns, nor begins afterwards. Waits for some
  // seconds at most; false when one still is. Does nothing where there is no watch.
  static bool stop();
  // Whether this process has used a GPU.
  static bool is_there();

 private:
  // One of the two threads.
  struct Round {
    explicit Round(bool (Watched::*what)()) : visit(what) {}
    bool (Watched::*const visit)();
    std::atomic<bool> awake{false};
    std::timed_mutex busy;  // held while groups are visited
    bool started = false;   // guarded by mutex_
  };
  CudaWatch();
  void start();
  void loop(Round& round);

  Round look_, poll_;
  std::mutex mutex_;
  std::condition_variable woken_;
  std::vector<std::weak_ptr<Watched>> groups_;
};

}  // namespace altorch::backend
