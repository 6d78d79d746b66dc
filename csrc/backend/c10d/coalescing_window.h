// SPDX-License-Identifier: BSD-3-Clause
// Coalescing windows: the calls of one thread between startCoalescing() and endCoalescing().
//
// torch does not end a window in which an exception was thrown, so no call may need the window's
// end to complete. A call on CPU tensors begins at once and has a Work of its own, which the
// window's Work only includes. Calls on CUDA tensors are kept until the window ends. They are
// launched earlier if a caller uses the Work of one of them. A synchronous call does not join a
// window of torch. The backend's own windows, which it always ends, take every call.
#pragma once

#include <atomic>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

#include "backend/c10d/prepared_call.h"
#include "backend/c10d/work.h"

namespace altorch::backend {

// Calls on CUDA tensors that are launched as one. Thread rules: any thread.
class Batch {
 public:
  using WorkPtr = c10::intrusive_ptr<c10d::Work>;
  using Launch = std::function<WorkPtr(std::vector<PreparedCall> calls)>;
  explicit Batch(Launch launch) : launch_(std::move(launch)) {}

  // False if the batch was launched already.
  bool add(PreparedCall& call);
  // Returns the Work of all its calls, which the first begin() launches. If the launch threw, every
  // begin() throws the same.
  WorkPtr begin();
  // Takes out its calls, which will never be launched: begin() then throws `why`.
  std::vector<PreparedCall> drop(std::exception_ptr why);

 private:
  const Launch launch_;
  std::mutex mutex_;  // guards what follows
  std::vector<PreparedCall> calls_;
  bool begun_ = false;
  WorkPtr work_;
  std::exception_ptr failure_;
};

// What torch gets for a call on CUDA tensors that a window keeps.
class KeptWork : public c10d::Work {
 public:
  // `key`: the completion key (backend/hooks/completion_hooks.h).
  KeptWork(int rank, c10d::OpType type, std::uint64_t sequence, std::chrono::milliseconds timeout,
           std::uint64_t key, std::shared_ptr<Batch> batch)
      : Work(rank, type), sequence_(sequence), timeout_(timeout), key_(key), batch_(std::move(batch)) {}

  bool isCompleted() override { return batch_->begin()->isCompleted(); }
  bool isSuccess() const override { return batch_->begin()->isSuccess(); }
  std::vector<at::Tensor> result() override { return batch_->begin()->result(); }
  void synchronize() override { wait(kNoTimeout); }
  bool wait(std::chrono::milliseconds timeout) override;
  void blockCurrentStream() override { wait(kNoTimeout); }
  std::exception_ptr exception() const override { return batch_->begin()->exception(); }
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override { return batch_->begin()->getFuture(); }
  c10::intrusive_ptr<c10::ivalue::Future> getFutureResult() override {
    return batch_->begin()->getFutureResult();
  }
  std::uint64_t getSequencenumber() const override { return sequence_; }
  // Virtuals of later torches, hence no `override`.
  // NOLINTBEGIN(modernize-use-override)
  std::chrono::milliseconds getTimeout() const { return timeout_; }
  std::uint64_t getCompletionKey() const { return key_; }
  // NOLINTEND(modernize-use-override)

 private:
  const std::uint64_t sequence_;
  const std::chrono::milliseconds timeout_;
  const std::uint64_t key_;
  const std::shared_ptr<Batch> batch_;
};

// Whether altorch is registered for CUDA tensors in this process.
bool carries_cuda();
void set_carries_cuda(bool value);
// Called with the name of a group when a call failed within a window that torch opened.
void set_broken_window_hook(std::function<void(const std::string&)> function);

struct CoalescingWindow {
  CoalescingWindow(bool is_own, c10::intrusive_ptr<AlWork> cpu_work, Batch::Launch batch_launch)
      : own(is_own), work(std::move(cpu_work)), launch(std::move(batch_launch)) {}

  // Keeps a call on CUDA tensors for the end.
  std::shared_ptr<Batch> keep(PreparedCall call);

  const std::thread::id owner = std::this_thread::get_id();
  const bool own;  // the backend opened it, for the calls of one *_coalesced call; else torch did
  const c10::intrusive_ptr<AlWork> work;  // of the calls on CPU tensors
  const Batch::Launch launch;
  std::vector<std::shared_ptr<Batch>> batches;
  bool broken = false;  // a call within it failed: no call joins it any more
};

// The open windows of a group. Thread rules: any thread; a thread sees its own windows only.
class CoalescingWindows {
 public:
  // The calling thread's innermost window, broken or not; null: it has none.
  std::shared_ptr<CoalescingWindow> innermost() const;
  // The same, unless it is broken.
  std::shared_ptr<CoalescingWindow> joinable() const;
  void open(std::shared_ptr<CoalescingWindow> window);
  void close(const std::shared_ptr<CoalescingWindow>& window);

 private:
  std::atomic<int> count_{0};  // open windows of all threads; mostly 0, and then no thread takes the lock
  mutable std::mutex mutex_;
  std::vector<std::shared_ptr<CoalescingWindow>> windows_;
};

}  // namespace altorch::backend
