// SPDX-License-Identifier: BSD-3-Clause
// What torch gets back for an operation.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <torch/csrc/distributed/c10d/Work.hpp>
#include <vector>

#include "backend/hooks/completion_hooks.h"
#include "runtime/communicator.h"

namespace altorch::backend {

// torch registers Works for wait_tensor() if allow_inflight_collective_as_graph_input is set. This
// removes a Work that was waited for in another way.
void forget_in_registry(c10d::Work& work);

// The Work of one or several operations of the engine. If they ran inline, it is complete from the
// start.
//
// wait() drives the operations. Errors are raised in wait() and set in the Future. Tensors are kept
// until all operations are done. They are released on the callback thread or by an Attended,
// because a tensor may belong to Python. Thread rules: any thread.
class AlWork : public c10d::Work {
 public:
  // Complete from the start. `source`: the rank that a message came from.
  AlWork(int rank, c10d::OpType type, std::uint64_t sequence, std::vector<at::Tensor> outputs,
         int source = -1, std::chrono::milliseconds timeout = kNoTimeout);
  // For tasks that add_task() adds. `hooks`, if there are any, are called when all tasks have
  // succeeded.
  AlWork(int rank, c10d::OpType type, std::uint64_t sequence, std::vector<at::Tensor> outputs,
         std::shared_ptr<Communicator> communicator, std::shared_ptr<const CompletionHooks> hooks = nullptr,
         std::chrono::milliseconds timeout = kNoTimeout);

  // Adds a task before it is submitted. `keep` lives until the task is done. `finish` (may be
  // empty) runs when it is, unless the task failed. A task may be part of two Works.
  void add_task(const std::shared_ptr<Task>& task, std::vector<at::Tensor> keep,
                std::function<void()> finish);
  bool has_tasks() const { return !parts_.empty(); }
  // All tasks are submitted: completion may be announced.
  void seal();
  // While it lives, tasks of the Work that end on this thread do not wake the callback thread to
  // release tensors. Its destructor releases them, on this thread.
  class Attended {
   public:
    explicit Attended(AlWork& work);
    ~Attended();
    Attended(const Attended&) = delete;

   private:
    AlWork& work_;
    const AlWork* const before_;
  };
  // Removes a task that could not be submitted.
  void abandon(Task& task);
  // Never releases these tensors: they belong to an operation that failed half-way, and MPI may
  // still write to them.
  static void leak_intentionally(std::vector<at::Tensor> tensors);
  // Adds the results of a task that joins later, for coalescing windows.
  void add_outputs(const std::vector<at::Tensor>& outputs);

  bool isCompleted() override;
  bool isSuccess() const override;
  std::exception_ptr exception() const override;
  int sourceRank() const override;
  std::vector<at::Tensor> result() override;
  void synchronize() override;
  bool wait(std::chrono::milliseconds timeout) override;
  // Aborts the whole group. Does nothing if this Work is complete.
  void abort() override;
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override;
  c10::intrusive_ptr<c10::ivalue::Future> getFutureResult() override;
  std::uint64_t getSequencenumber() const override;
  float getDuration() const override;
  // Virtuals of later torches, hence no `override`.
  // NOLINTBEGIN(modernize-use-override)
  std::chrono::milliseconds getTimeout() const { return timeout_; }
  std::uint64_t getCompletionKey() const;
  // NOLINTEND(modernize-use-override)
  // Tells the hooks that this Work has succeeded.
  void tell(const CompletionHooks& hooks) const { hooks.tell(getCompletionKey(), getDuration()); }

 private:
  struct Part {
    std::shared_ptr<Task> task;
    std::vector<at::Tensor> keep;
    bool done = false;
  };
  void part_done(const Task& task);
  void release_parts();
  void complete();
  void mark_futures();

  const std::uint64_t sequence_;
  const int source_ = -1;
  std::vector<at::Tensor> outputs_;
  const std::shared_ptr<Communicator> communicator_;
  const std::shared_ptr<const CompletionHooks> hooks_;
  const std::chrono::milliseconds timeout_;
  mutable std::atomic<std::uint64_t> key_{0};  // 0: not requested yet
  std::atomic<int> pending_{0};
  std::atomic<bool> done_{false};
  std::chrono::steady_clock::time_point began_ = std::chrono::steady_clock::now();
  std::chrono::steady_clock::time_point ended_{};

  mutable std::mutex guard_;  // guards what follows
  std::vector<Part> parts_;   // grows only before seal()
  std::exception_ptr failure_;
  bool timed_out_ = false;
  c10::intrusive_ptr<c10::ivalue::Future> future_, result_future_;
  bool future_marked_ = false, result_future_marked_ = false;
};

}  // namespace altorch::backend
