// SPDX-License-Identifier: BSD-3-Clause
// Two threads that watch the groups and windows with something in flight on a GPU, ten times a
// second. The host does not wait for the device, so these threads must notice that a peer is lost
// or that a deadline has passed. One thread (al-cuda-poll) asks CUDA how far the device is. The
// other one (al-cuda-watch) ends what hangs. It never calls CUDA, which may block every caller
// while a kernel hangs. Both sleep while nothing is in flight.
#pragma once

#include <atomic>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <vector>

#include "gpu/watched.h"

namespace altorch::backend {

// Thread rules: any thread.
class CudaWatch {
 public:
  // Throws Error(kTransport) where its threads cannot be started.
  static CudaWatch& instance();

  void add(const std::shared_ptr<Watched>& group);
  // Something was launched. While both threads are awake, it only reads two atomics.
  void wake();
  // Called at exit, before CUDA is unloaded. When it returns, no visit of a group is in progress,
  // and none begins afterwards. Waits for a few seconds at most; false if a visit still goes on.
  // Does nothing if there is no watch.
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
