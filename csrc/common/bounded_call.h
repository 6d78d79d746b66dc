// A call that may block for ever in somebody else's library: it runs on a thread of its own, so that who
// waits for it can give up.
#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>

#include "common/native_thread.h"

namespace altorch {

// Thread rules: one thread waits. What `body` uses must outlive it, not who waits; it must not throw.
class BoundedCall {
 public:
  // `name`: of the thread. Throws Error(kTransport) when there can be no more threads.
  BoundedCall(const char* name, std::function<void()> body) {
    start_native_thread(name, [state = state_, body = std::move(body)] {
      body();
      const std::lock_guard lock(state->mutex);
      state->done = true;
      state->changed.notify_all();
    });
  }
  // Whether it has returned, before `patience` is over. Then what it has written can be read.
  bool wait_for(std::chrono::milliseconds patience) {
    std::unique_lock lock(state_->mutex);
    return state_->changed.wait_for(lock, patience, [&] { return state_->done; });
  }

 private:
  struct State {
    std::mutex mutex;
    std::condition_variable changed;
    bool done = false;
  };
  const std::shared_ptr<State> state_ = std::make_shared<State>();
};

}  // namespace altorch
