// SPDX-License-Identifier: BSD-3-Clause
#include "backend/cuda/window_streams.h"

#include <ATen/core/jit_type.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/StreamGuard.h>

#include "backend/c10d/errors.h"
#include "backend/c10d/work.h"
#include "backend/cuda/cuda_guard.h"
#include "base/adaptive_wait.h"
#include "base/longest_timeout.h"

namespace altorch::backend {
namespace {

// Streams of one device that no window has at present. They stay: torch's allocator asks a stream
// that it was told of for as long as the tensor lives, longer than the window may.
class SparedStreams {
 public:
  static SparedStreams& of(c10::Device device) {
    static auto* const mutex = new std::mutex;
    static auto* const all = new std::map<c10::DeviceIndex, SparedStreams>;
    const std::lock_guard lock(*mutex);
    return all->try_emplace(device.index(), device).first->second;
  }
  explicit SparedStreams(c10::Device device) : device_(device), maker_(device.index()) {}

  c10::Stream take() {
    const std::lock_guard lock(mutex_);
    if (spared_.empty()) {
      // torch names a stream that is not its own by its address.
      const auto address = reinterpret_cast<std::intptr_t>(maker_.make_stream(/*high_priority=*/true));
      return c10::Stream(c10::Stream::UNSAFE, device_, static_cast<c10::StreamId>(address));
    }
    const c10::Stream taken = spared_.back();
    spared_.pop_back();
    return taken;
  }
  void give_back(c10::Stream stream) {
    const std::lock_guard lock(mutex_);
    spared_.push_back(stream);
  }

 private:
  const c10::Device device_;
  std::mutex mutex_;  // guards what follows
  CudaDevice maker_;
  std::vector<c10::Stream> spared_;
};

}  // namespace

WindowStreams::WindowStreams(c10::Device device) : device_(device) {}

WindowStreams::~WindowStreams() {
  for (const auto& [of, stream] : sides_) SparedStreams::of(device_).give_back(stream);
}

c10::Stream WindowStreams::side(int of) {
  const std::lock_guard lock(mutex_);
  const auto found = sides_.find(of);
  if (found != sides_.end()) return found->second;
  return sides_.emplace(of, SparedStreams::of(device_).take()).first->second;
}

WindowStreams::Turn WindowStreams::begin(bool async, int of) {
  const c10::DeviceGuard on_device(device_);
  const c10::Stream current = cuda_guard().getStream(device_);
  const bool captured = is_captured(current);
  if (!async) {
    // After the asynchronous ones before it, where both are captured or neither is: a graph knows
    // nothing from outside.
    if (of == kAccesses && accesses_.load()) {
      const c10::Stream own = side(of);
      if (is_captured(own) == captured) {
        c10::Event behind(c10::DeviceType::CUDA);
        behind.record(own);
        behind.block(current);
      }
    }
    if (captured || is_of_torch(current)) return {current, captured};
    const c10::Stream moved = side(kMoved - of);
    c10::Event before(c10::DeviceType::CUDA);
    before.record(current);
    before.block(moved);
    return {moved, captured, current};
  }
  const c10::Stream own = side(of);
  if (of == kAccesses) accesses_.store(true);
  c10::Event begin(c10::DeviceType::CUDA);
  begin.record(current);
  begin.block(own);
  return {own, captured};
}

void WindowStreams::rejoin(const Turn& turn) const {
  if (!turn.back) return;
  const c10::DeviceGuard on_device(device_);
  c10::Event end(c10::DeviceType::CUDA);
  end.record(turn.stream);
  end.block(*turn.back);
}

void WindowStreams::touch(const Turn& turn, const std::vector<at::Tensor>& tensors) const {
  const c10::DeviceGuard on_device(device_);
  for (const at::Tensor& tensor : tensors) {
    if (tensor.defined()) cuda_guard().recordDataPtrOnStream(tensor.storage().data_ptr(), turn.stream);
  }
}

c10::intrusive_ptr<c10d::Work> WindowStreams::end(const Turn& turn, int rank,
                                                  std::shared_ptr<altorch::Window> window) {
  const c10::DeviceGuard on_device(device_);
  c10::Event end(c10::DeviceType::CUDA);
  end.record(turn.stream);
  return c10::make_intrusive<StreamWork>(rank, device_, std::move(end), std::move(window));
}

std::exception_ptr StreamWork::exception() const {
  const auto error = window_->failure();
  return error ? as_torch(*error) : nullptr;
}

bool StreamWork::wait(std::chrono::milliseconds timeout) {
  forget_in_registry(*this);
  return guarded([&] {
    const auto deadline = std::chrono::steady_clock::now() + clamp_timeout(timeout);
    AdaptiveWait pauses;
    while (timeout != kNoTimeout && !end_.query() && !window_->failure()) {
      if (std::chrono::steady_clock::now() > deadline)
        throw Error(ErrorKind::kTimeout, "altorch: wait(timeout) of a window's call on " + device_.str() +
                                             " timed out after " + std::to_string(timeout.count()) +
                                             " ms; the call itself goes on until its own deadline");
      pauses.pause();
    }
    if (const auto error = window_->failure()) throw *error;
    end_.block(cuda_guard().getStream(device_));
    return true;
  });
}

// It takes its event from the current stream: one that waits for this call and for nothing later.
c10::intrusive_ptr<c10::ivalue::Future> StreamWork::getFuture() {
  auto future = c10::make_intrusive<c10::ivalue::Future>(c10::ListType::create(c10::TensorType::get()),
                                                         std::vector<c10::Device>{device_});
  if (const auto error = window_->failure()) {
    future->setError(as_torch(*error));
    return future;
  }
  const c10::Stream carrier = cuda_guard().getStreamFromGlobalPool(device_, /*isHighPriority=*/true);
  end_.block(carrier);
  const c10::StreamGuard on(carrier);
  future->markCompleted(at::IValue(std::vector<at::Tensor>()));
  return future;
}

}  // namespace altorch::backend
