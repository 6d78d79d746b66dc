// SPDX-License-Identifier: BSD-3-Clause
// Chooses the stream of each call of a window on a GPU. A synchronous call runs on the caller's
// current stream, if torch owns that. Any other call runs on a stream of the window's, after what
// the current stream holds; Work::wait(), or rejoin(), orders the current stream after it. One
// stream serves accesses, and one per rank serves waits for signals, so that they do not delay each
// other.
#pragma once

#include <c10/core/Event.h>
#include <c10/core/Stream.h>

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <torch/csrc/distributed/c10d/Work.hpp>
#include <vector>

#include "device/cuda_device.h"
#include "windows/window.h"

namespace altorch::backend {

// Thread rules: any thread.
class WindowStreams {
 public:
  static constexpr int kAccesses = -1;

  explicit WindowStreams(c10::Device device);
  ~WindowStreams();
  WindowStreams(const WindowStreams&) = delete;

  struct Turn {
    c10::Stream stream;
    bool captured;
    // The caller's stream, if the call runs on another; rejoin() makes it wait for that.
    std::optional<c10::Stream> back = std::nullopt;
  };
  // `of`: kAccesses, or the rank that is waited for. A synchronous call goes to a stream of the
  // window's, too, where the caller's is not torch's: the window asks streams of its calls later,
  // and that one may be destroyed by then.
  Turn begin(bool async, int of);
  void rejoin(const Turn& turn) const;
  // To be called before an asynchronous call: the allocator must not reuse the memory of these
  // tensors until it ends.
  void touch(const Turn& turn, const std::vector<at::Tensor>& tensors) const;
  // Returns the Work of an asynchronous call.
  c10::intrusive_ptr<c10d::Work> end(const Turn& turn, int rank, std::shared_ptr<altorch::Window> window);
  c10::Device device() const { return device_; }

 private:
  // Calls that are moved have streams of their own: an asynchronous call may wait for a peer for
  // long.
  static constexpr int kMoved = -3;  // minus what they are of
  c10::Stream side(int of);

  const c10::Device device_;
  std::atomic<bool> accesses_{false};  // an access ran on the window's stream
  std::mutex mutex_;                   // guards what follows
  std::map<int, c10::Stream> sides_;
};

// Thread rules: any thread.
class StreamWork : public c10d::Work {
 public:
  StreamWork(int rank, c10::Device device, c10::Event end, std::shared_ptr<altorch::Window> window)
      : Work(rank, c10d::OpType::UNKNOWN),
        device_(device),
        end_(std::move(end)),
        window_(std::move(window)) {}

  bool isCompleted() override { return end_.query(); }
  bool isSuccess() const override { return end_.query() && !window_->failure(); }
  std::exception_ptr exception() const override;
  void synchronize() override { wait(kNoTimeout); }
  void blockCurrentStream() override { wait(kNoTimeout); }
  bool wait(std::chrono::milliseconds timeout) override;
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override;

 private:
  const c10::Device device_;
  const c10::Event end_;
  const std::shared_ptr<altorch::Window> window_;
};

}  // namespace altorch::backend
