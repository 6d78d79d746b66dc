// SPDX-License-Identifier: BSD-3-Clause
// c10d::Window over the engine's Window: checks tensors, describes the access, returns a Work.
//
// torch declares the interface from 2.14 on. With older versions the same class is altorch.Window.
// It also has calls that torch's interface lacks.
#pragma once

#include <ATen/core/Tensor.h>

#include <mutex>
#include <optional>
#include <torch/csrc/distributed/c10d/Backend.hpp>

#include "backend/cuda/window_streams.h"
#include "windows/window.h"

namespace altorch::backend {

#ifdef C10D_BACKEND_HAS_WINDOW
using WindowBase = c10d::Window;
#else
using WindowBase = torch::CustomClassHolder;
#endif

// Offsets and strides are in elements of the target's tensor, read as one row. Thread rules: any
// thread.
class AlWindow : public WindowBase {
 public:
  using WorkPtr = c10::intrusive_ptr<c10d::Work>;
  // The target of an access: rows that begin `stride` elements apart; without a stride, one block.
  struct Place {
    std::int64_t rank = 0, offset = 0;
    std::optional<std::int64_t> stride = {};
  };
  using Timeout = std::optional<std::chrono::milliseconds>;  // none: the group's timeout

  // `has_exact_sums`: accumulate() refuses what depends on the order of the ranks.
  AlWindow(std::shared_ptr<Communicator> communicator, std::chrono::milliseconds timeout, OnError on_error,
           bool has_exact_sums);

  // All methods from here on throw torch's errors.
  // Collective. `owning`: the window keeps the tensor alive for as long as peers may access it;
  // otherwise the caller must.
  void register_tensor(const at::Tensor& tensor, bool owning);
  void deregister_tensor();

  // `slot`: also signals the target in this slot.
  WorkPtr put(const at::Tensor& tensor, const Place& place, bool async, Timeout timeout,
              std::optional<int> slot = std::nullopt);
  WorkPtr accumulate(const at::Tensor& tensor, const Place& place, const std::string& op, bool async,
                     Timeout timeout);
  WorkPtr get(const at::Tensor& tensor, const Place& place, bool async, Timeout timeout);
  std::int64_t fetch_add(std::int64_t rank, std::int64_t offset, std::int64_t value, Timeout timeout);
  std::int64_t compare_swap(std::int64_t rank, std::int64_t offset, std::int64_t expected, std::int64_t value,
                            Timeout timeout);
  WorkPtr signal_rank(std::int64_t rank, int slot, bool async, Timeout timeout);
  WorkPtr wait_for_signal(std::int64_t rank, int slot, bool async, Timeout timeout);
  void flush(std::optional<std::int64_t> rank);
  // Collective. Returns when all ranks have called it, and all accesses that any of them began
  // before have taken effect.
  void fence();
  // The tensor that a rank has registered, as one row. Throws an error if this process cannot map
  // it.
  at::Tensor map(std::int64_t rank);
  std::string route();

#ifdef C10D_BACKEND_HAS_WINDOW
  void tensor_register(const at::Tensor& tensor, bool owning = true) override;
  void tensor_deregister() override;
  WorkPtr put(const at::Tensor& tensor, std::int64_t rank, std::int64_t offset, bool async,
              const c10d::PutOptions& options) override;
  WorkPtr signal(std::int64_t rank, bool async, const c10d::SignalOptions& options) override;
  WorkPtr wait_signal(std::int64_t rank, bool async, const c10d::WaitSignalOptions& options) override;
  at::Tensor map_remote_tensor(std::int64_t rank) override;
  c10d::WindowAttr get_attr(std::int64_t rank) override;
#endif

 private:
  // Checks that the rank exists and calls `body(rank)`; without a rank it passes kAnySource, for
  // all ranks. Errors that are raised before the engine is called name the access, as the engine's
  // own errors do.
  template <class Body>
  auto asked(const Asking& asking, std::optional<std::int64_t> rank, Body&& body) const -> decltype(body(0));
  void set_tensor(const at::Tensor& tensor, bool owning);
  void release_tensor();
  // What is registered. `streams`: null if the tensor is on the CPU.
  struct Open {
    std::shared_ptr<altorch::Window> window;
    std::shared_ptr<WindowStreams> streams;
  };
  Open open() const;
  std::shared_ptr<altorch::Window> window() const { return open().window; }
  std::chrono::milliseconds deadline(Timeout timeout) const { return timeout.value_or(timeout_); }
  WindowCall describe(Access access, const at::Tensor& tensor, const Place& place) const;
  WorkPtr run_on_stream(const Open& opened, WindowCall call, const std::vector<at::Tensor>& touched,
                        bool async, Timeout timeout, const std::function<void()>& finish);
  WorkPtr run(WindowCall call, std::vector<at::Tensor> keep, bool async, Timeout timeout,
              std::function<void()> finish = nullptr);
  std::int64_t count(Access access, int rank, std::int64_t offset, std::int64_t operand,
                     std::int64_t expected, Timeout timeout);
  WorkPtr under_way(const std::shared_ptr<WindowTask>& task, std::vector<at::Tensor> keep,
                    std::function<void()> finish);

  const std::shared_ptr<Communicator> communicator_;
  const std::chrono::milliseconds timeout_;
  const OnError on_error_;
  const bool has_exact_sums_;
  const WorkPtr finished_;  // the Work of a call that is done when it returns
  std::mutex registering_;
  mutable std::mutex mutex_;  // guards what follows
  Open open_;
  at::Tensor own_;  // the registered tensor, as one row
};

// A tensor whose memory other processes of this node can map. Thread rules: any thread.
at::Tensor empty_shareable(const std::vector<std::int64_t>& sizes, at::ScalarType dtype, c10::Device device);

}  // namespace altorch::backend
