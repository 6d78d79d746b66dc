// SPDX-License-Identifier: BSD-3-Clause
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

#include "base/error.h"
#include "platform/native_thread.h"

namespace altorch::backend {

struct StoreRequest {
  std::function<void(c10d::Store&)> run;
  bool done = false;         // guarded by the worker's mutex, as is what follows
  std::exception_ptr error;  // what run() threw
};

class StoreLease;

class StoreWorker {
 public:
  // All groups of a job share one clone of its store, a connection of its own: somebody else's blocking get
  // on the original does not stop us. One, and later than the start, because the store's host looks up the name of
  // whoever connects, which takes seconds on a machine without a name server, and holds up everybody's requests.
  static std::shared_ptr<StoreWorker> of(c10::intrusive_ptr<c10d::Store> store);
  static std::shared_ptr<StoreLease> lease(const c10::intrusive_ptr<c10d::Store>& store);

  // Works on `original` until settle(), and then on a clone.
  explicit StoreWorker(c10::intrusive_ptr<c10d::Store> original);
  ~StoreWorker() { close(); }
  StoreWorker(const StoreWorker&) = delete;

  // From now on somebody else may block on the original. Idempotent.
  void settle();
  // What is queued is still carried out; from now on everything is refused.
  void close() noexcept;
  // This, original() and submit() throw Error(kClosed).
  c10::intrusive_ptr<c10d::Store> store() const;
  c10::intrusive_ptr<c10d::Store> original() const;
  void submit(std::shared_ptr<StoreRequest> request);
  // Whether it was done within `patience`; false at once when an earlier request has taken longer than that
  // already.
  bool wait(const StoreRequest& request, std::chrono::milliseconds patience);

 private:
  using Clock = std::chrono::steady_clock;
  struct State {
    explicit State(c10::intrusive_ptr<c10d::Store> original) : store(std::move(original)) {}
    std::mutex mutex;  // guards what follows
    c10::intrusive_ptr<c10d::Store> store;
    std::condition_variable submitted, finished;
    std::deque<std::shared_ptr<StoreRequest>> queue;
    Clock::time_point busy_since{};  // with the head of the queue
    bool settled = false, cloned = false;
    bool stopping = false;
  };
  static void serve(State& state);
  void check_open() const;  // with the mutex held
  void check_not_forked() const;
  bool serves(const c10::intrusive_ptr<c10d::Store>& store) const;

  // A weak pointer of c10's would keep it from closing, when all others let it go.
  c10::intrusive_ptr<c10d::Store> original_;
  const std::shared_ptr<State> state_;  // the thread holds it too
  NativeThread thread_;
  const long process_;
  std::weak_ptr<StoreLease> lease_;
  bool was_leased_ = false;
};

// What a group holds for as long as it may ask the store. The last one closes the store before its destructor
// returns (or leaves that to its thread, after a second without an answer): a process that ended while a
// thread of ours asks or closes it would leave half a record in a store that is a file (c10d::FileStore), and
// whoever reads that comes to no end.
class StoreLease {
 public:
  explicit StoreLease(std::shared_ptr<StoreWorker> worker) : worker_(std::move(worker)) {}
  ~StoreLease();
  StoreLease(const StoreLease&) = delete;
  void settle() { worker_->settle(); }

 private:
  const std::shared_ptr<StoreWorker> worker_;
};

}  // namespace altorch::backend
