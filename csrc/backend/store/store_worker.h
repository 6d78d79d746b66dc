// SPDX-License-Identifier: BSD-3-Clause
// One connection to the c10d store, and the thread that makes requests over it. If the store's host
// is stopped, only this thread blocks, and waiting threads keep their deadlines.
//
// Requests run one after another, in the order in which they came. Thread rules: any thread. In a
// forked child, which has no such thread, every request is refused.
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
  // All groups of a job share one clone of its store, which has a connection of its own. So a get()
  // of the program that blocks on the original does not block altorch. There is one clone only, and
  // it is made some time after the start. The reason: the store's host looks up the name of each
  // new client. Without a name server that takes seconds, and delays the requests of all ranks.
  static std::shared_ptr<StoreWorker> of(c10::intrusive_ptr<c10d::Store> store);
  static std::shared_ptr<StoreLease> lease(const c10::intrusive_ptr<c10d::Store>& store);

  // Works on `original` until settle(), and then on a clone, if there can be one.
  explicit StoreWorker(c10::intrusive_ptr<c10d::Store> original);
  ~StoreWorker() { close(); }
  StoreWorker(const StoreWorker&) = delete;

  // From now on another thread may block on the original. Idempotent.
  void settle();
  // Requests in the queue are still carried out; later ones are refused.
  void close() noexcept;
  // store(), original() and submit() throw Error(kClosed) after close().
  c10::intrusive_ptr<c10d::Store> store() const;
  c10::intrusive_ptr<c10d::Store> original() const;
  void submit(std::shared_ptr<StoreRequest> request);
  // Whether it was done within `timeout`; false at once when an earlier request has taken longer
  // than that already.
  bool wait(const StoreRequest& request, std::chrono::milliseconds timeout);

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

  // No weak pointer of c10: that would keep the store from closing after all owners have released
  // it.
  c10::intrusive_ptr<c10d::Store> original_;
  const std::shared_ptr<State> state_;  // the thread holds it too
  NativeThread thread_;
  const long process_;
  std::weak_ptr<StoreLease> lease_;
  bool was_leased_ = false;
};

// A group holds a lease for as long as it may ask the store. The last lease closes the store before
// its destructor returns. After a second without an answer it leaves that to the worker's thread.
// If the process ended while that thread makes a request or closes the store, a store in a file
// (c10d::FileStore) would be left with half a record. A rank that reads such a record never
// returns.
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
