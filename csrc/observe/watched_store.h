// A store in which one waits for ranks whose processes are watched: that one of them is dead ends the wait, and so does
// another thread (common/interrupt.h).
#pragma once

#include <chrono>
#include <memory>
#include <vector>

#include "common/signal_check.h"
#include "common/store_view.h"
#include "observe/job_watch.h"

namespace altorch {

// Thread rules: one thread waits at a time.
class WatchedStore : public StoreView {
 public:
  // `ranks`: of the job, as `watch` knows them. Without a watch nobody is looked after.
  WatchedStore(KeyValueStore& store, std::shared_ptr<JobWatch> watch, std::vector<int> ranks)
      : StoreView(store), watch_(std::move(watch)), ranks_(std::move(ranks)) {}

  // Throws Error: kPeerLost; kClosed when another thread ends it; kInterrupted when a signal does.
  void attend() override;
  // As long as the store has it, and the ranks live.
  std::string get(const std::string& key, std::chrono::milliseconds timeout) override;

 private:
  const std::shared_ptr<JobWatch> watch_;
  const std::vector<int> ranks_;
  std::chrono::steady_clock::time_point next_look_{};
  int looks_ = 0;
  bool suspicion_ = false;
  SignalCheck signals_;
};

}  // namespace altorch
