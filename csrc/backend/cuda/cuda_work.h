// SPDX-License-Identifier: BSD-3-Clause
// What torch gets back for an asynchronous operation on CUDA tensors.
#pragma once

#include "backend/cuda/cuda_group.h"

namespace altorch::backend {

// wait() orders the current stream after the operation and returns at once; with a timeout it
// blocks the host. The Future is complete at once too, and carries the event. isCompleted() tells
// whether the device is done. Once the operation has failed, wait(), exception() and a Future that
// is asked for later tell why. Thread rules: any thread.
class CudaWork : public c10d::Work {
 public:
  CudaWork(int rank, c10d::OpType type, std::uint64_t sequence, std::vector<at::Tensor> outputs,
           std::shared_ptr<CudaGroup> group, std::shared_ptr<InFlight> in_flight, int source,
           std::chrono::milliseconds timeout);

  bool isCompleted() override { return is_done(); }
  bool isSuccess() const override;
  std::exception_ptr exception() const override;
  int sourceRank() const override { return source_; }
  std::vector<at::Tensor> result() override { return outputs_; }
  void synchronize() override { wait(kNoTimeout); }
  bool wait(std::chrono::milliseconds timeout) override;
  void blockCurrentStream() override { wait(kNoTimeout); }
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override;
  // Complete when the device is done, or has aborted, some 0.1 s later at most.
  c10::intrusive_ptr<c10::ivalue::Future> getFutureResult() override { return in_flight_->future_result(); }
  // With everything else of the group.
  void abort() override { group_->abort("a Work of the group was aborted"); }
  std::uint64_t getSequencenumber() const override { return sequence_; }
  // Virtuals of later torches, hence no `override`.
  // NOLINTBEGIN(modernize-use-override)
  std::chrono::milliseconds getTimeout() const { return timeout_; }
  std::uint64_t getCompletionKey() const { return in_flight_->key; }
  // NOLINTEND(modernize-use-override)

 private:
  const std::uint64_t sequence_;
  const std::vector<at::Tensor> outputs_;
  const std::shared_ptr<CudaGroup> group_;
  const std::shared_ptr<InFlight> in_flight_;
  const int source_;
  const std::chrono::milliseconds timeout_;
  // Throws Error(kInvalidArgument).
  void refuse_if_captured() const;
  // Throws torch's form of that.
  bool is_done() const;
  c10::intrusive_ptr<c10::ivalue::Future> make_future() const;
  // Why the operation failed, if it did.
  std::optional<Error> failure() const;

  std::mutex guard_;  // of future_
  c10::intrusive_ptr<c10::ivalue::Future> future_;
};

}  // namespace altorch::backend
