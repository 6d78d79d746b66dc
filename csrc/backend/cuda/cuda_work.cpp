// SPDX-License-Identifier: BSD-3-Clause
#include "backend/cuda/cuda_work.h"

#include <ATen/core/jit_type.h>
#include <c10/core/StreamGuard.h>

#include "backend/c10d/errors.h"
#include "backend/c10d/work.h"
#include "backend/cuda/cuda_guard.h"
#include "gpu/release_rule.h"

namespace altorch::backend {

CudaWork::CudaWork(int rank, c10d::OpType type, std::uint64_t sequence, std::vector<at::Tensor> outputs,
                   std::shared_ptr<CudaGroup> group, std::shared_ptr<InFlight> in_flight, int source,
                   std::chrono::milliseconds timeout)
    : Work(rank, type),
      sequence_(sequence),
      outputs_(std::move(outputs)),
      group_(std::move(group)),
      in_flight_(std::move(in_flight)),
      source_(source),
      timeout_(timeout) {}

std::optional<Error> CudaWork::failure() const {
  return in_flight_->failed.load() ? group_->failure() : std::nullopt;
}

void CudaWork::refuse_if_captured() const {
  if (!in_flight_->captured) return;
  throw Error(
      ErrorKind::kInvalidArgument,
      "a CUDA graph has captured this call, and its Work cannot tell whether a replay is done; ask an "
      "event or a stream that comes after the replay");
}

bool CudaWork::is_done() const {
  return guarded([&] {
    refuse_if_captured();
    return in_flight_->end.query();
  });
}

bool CudaWork::isSuccess() const { return is_done() && !failure(); }

std::exception_ptr CudaWork::exception() const {
  const auto error = failure();
  return error ? as_torch(*error) : nullptr;
}

bool CudaWork::wait(std::chrono::milliseconds timeout) {
  forget_in_registry(*this);
  return guarded([&] {
    if (const auto error = failure()) throw *error;
    if (timeout != kNoTimeout) {
      refuse_if_captured();
      group_->wait_on_host(in_flight_->end, timeout, "wait(timeout)");
    }
    const c10::Stream here = cuda_guard().getStream(group_->device());
    in_flight_->end.block(here);
    const bool is_calls_stream = in_flight_->called_on == here;
    const bool is_over = timeout != kNoTimeout;  // the event is not asked: another thread may capture a graph
    if (!releases_tensors(is_calls_stream, in_flight_->captured, is_over)) {
      group_->note_wait_elsewhere();
      return true;
    }
    std::vector<at::Tensor> released;  // without the lock
    const std::lock_guard lock(in_flight_->mutex);
    released.swap(in_flight_->tensors);
    return true;
  });
}

c10::intrusive_ptr<c10::ivalue::Future> CudaWork::getFuture() {
  const std::lock_guard lock(guard_);
  if (!future_) future_ = guarded([&] { return make_future(); });
  return future_;
}

c10::intrusive_ptr<c10::ivalue::Future> CudaWork::make_future() const {
  auto future = c10::make_intrusive<c10::ivalue::Future>(c10::ListType::create(c10::TensorType::get()),
                                                         std::vector<c10::Device>{group_->device()});
  if (const auto error = failure()) {
    future->setError(as_torch(*error));
    return future;
  }
  group_->complete_future(*in_flight_, [&](const c10::Stream& carrier) {
    const c10::StreamGuard on(carrier);  // the Future takes its event from the current stream
    future->markCompleted(at::IValue(outputs_));
  });
  return future;
}

}  // namespace altorch::backend
