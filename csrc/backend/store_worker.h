// One connection to the c10d store, and the thread that asks over it, so that a store whose host is stopped
// holds up that thread and nobody's deadline.
//
// Requests are carried out one after another, in the order in which they came. Thread rules: any thread. In a
// forked child, which has no such thread, everything is refused.
#pragma once

#include <chrono>
#include <condition_variable>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include "common/error.h"

namespace altorch::backend {

struct StoreRequest {
  std::function<void(c10d::Store&)> run;
  bool done = false;         // guarded by the worker's mutex, as is what follows
  std::exception_ptr error;  // what run() threw
};

class StoreWorker {
 public:
  // All groups of a job share one clone of its store, a connection of its own: somebody else's blocking get
  // on the original does not stop us. One, because a clone looks host names up, which takes seconds on a
  // machine without a name server.
  static std::shared_ptr<StoreWorker> of(c10::intrusive_ptr<c10d::Store> store);

  explicit StoreWorker(c10::intrusive_ptr<c10d::Store> store);
  // What is queued is still carried out; nobody waits for it.
  ~StoreWorker();
  StoreWorker(const StoreWorker&) = delete;

  const c10::intrusive_ptr<c10d::Store>& store() const { return state_->store; }
  void submit(std::shared_ptr<StoreRequest> request);
  // Whether it was done within `patience`; false at once when an earlier request has taken longer than that
  // already.
  bool wait(const StoreRequest& request, std::chrono::milliseconds patience);

 private:
  using Clock = std::chrono::steady_clock;
  struct State {
    c10::intrusive_ptr<c10d::Store> store;
    std::mutex mutex;
    std::condition_variable submitted, finished;
    std::deque<std::shared_ptr<StoreRequest>> queue;
    Clock::time_point busy_since{};  // with the head of the queue
    bool stopping = false;
  };
  static void serve(State& state);
  void check_not_forked() const;

  const std::shared_ptr<State> state_;  // the thread holds it too
  const long process_;
};

}  // namespace altorch::backend
