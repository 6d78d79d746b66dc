// What torch gets back for an operation on CUDA tensors.
#pragma once

#include "backend/cuda_group.h"

namespace altorch::backend {

// wait() orders the current stream after the operation and returns at once; with a timeout it blocks the
// host. The Future is complete at once too, and carries the event. isCompleted() tells whether the device is
// done. Thread rules: any thread.
class CudaWork : public c10d::Work {
 public:
  // Synchronous: `stream` is the caller's, which is ordered already, and `in_flight` is null.
  CudaWork(int rank, c10d::OpType type, std::uint64_t sequence, std::vector<at::Tensor> outputs,
           std::shared_ptr<CudaGroup> group, const c10::Stream& stream, std::shared_ptr<InFlight> in_flight,
           int source);

  bool isCompleted() override;
  bool isSuccess() const override { return true; }
  int sourceRank() const override { return source_; }
  std::vector<at::Tensor> result() override { return outputs_; }
  void synchronize() override { wait(kNoTimeout); }
  bool wait(std::chrono::milliseconds timeout) override;
  void blockCurrentStream() override { wait(kNoTimeout); }
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override;
  std::uint64_t getSequencenumber() const override { return sequence_; }

 private:
  const c10::Event& end();

  const std::uint64_t sequence_;
  const std::vector<at::Tensor> outputs_;
  const std::shared_ptr<CudaGroup> group_;
  const c10::Stream stream_;
  const std::shared_ptr<InFlight> in_flight_;
  const int source_;
  std::mutex guard_;                    // what follows
  std::optional<c10::Event> late_end_;  // of a synchronous call: made when somebody asks
  c10::intrusive_ptr<c10::ivalue::Future> future_;
};

}  // namespace altorch::backend
