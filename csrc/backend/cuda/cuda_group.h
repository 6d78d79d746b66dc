// SPDX-License-Identifier: BSD-3-Clause
// The state of a process group on one GPU: its routes, a stream of its own, and the calls in
// flight.
//
// A synchronous call is enqueued on the caller's current stream, and uses no other one. An
// asynchronous call runs on the group's own high-priority stream, after the work that the current
// stream held; Work::wait() orders the current stream after it. Of the calls, only barrier() and
// wait() with a timeout make the host wait for the device.
#pragma once

#include <c10/core/Event.h>
#include <c10/core/Stream.h>

#include <atomic>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <torch/csrc/distributed/c10d/Work.hpp>

#include "backend/c10d/prepared_call.h"
#include "backend/hooks/completion_hooks.h"
#include "device/cuda_device.h"
#include "gpu/device_calls.h"
#include "gpu/gpu_routes.h"
#include "gpu/watched.h"
#include "runtime/communicator.h"

namespace altorch::backend {

// What an asynchronous call leaves behind until the device has finished it.
struct InFlight {
  explicit InFlight(c10::Event event) : end(std::move(event)) {}
  c10::Event end;
  std::optional<c10::Stream>
      called_on;  // the stream that was current at the call, or at all calls of a batch
  bool captured = false;
  std::mutex mutex;  // guards tensors
  std::vector<at::Tensor>
      tensors;  // kept until the end, or until a stream has waited behind which they may go (release_rule.h)
  // The outcome, once it is known, and the Future that is completed with it. Guarded by the mutex,
  // too.
  std::optional<c10d::WorkResult> outcome;
  c10::intrusive_ptr<c10::ivalue::Future> result;
  std::atomic<bool> failed{false};  // it was in flight when the group failed
  // Completion keys: of its own Work, and of the Works of the calls that a coalescing window kept.
  const std::uint64_t key = CompletionHooks::next_key();
  std::vector<std::uint64_t> kept_keys;

  // Marks it as ended. Called once, on a thread on which callbacks may run.
  void ended(c10d::WorkResult how);
  // Completes when it has ended, with torch's c10d::WorkResult as a number.
  c10::intrusive_ptr<c10::ivalue::Future> future_result();
};

// Thread rules: any thread.
class CudaGroup : public Watched, public std::enable_shared_from_this<CudaGroup> {
 public:
  // Collective over the group. `first`: the operation that it is made for, on its device. Throws
  // Error.
  CudaGroup(std::shared_ptr<Communicator> communicator, const Operation& first,
            std::chrono::milliseconds timeout, bool high_priority, OnError on_error, GpuRouteOptions options,
            std::shared_ptr<const CompletionHooks> hooks);
  ~CudaGroup() override;

  // Makes the route that this operation takes; collective over the group.
  void connect(const Operation& usual);
  // Whether a route carries this call, on the current stream; collective over the group.
  bool can_carry(const Operation& operation);
  // Enqueues the calls, several of them together. Null if not `async`: then the caller's stream is
  // in order already.
  c10::intrusive_ptr<c10d::Work> launch(c10d::OpType type, std::vector<PreparedCall> calls, bool async);

  // suspend() waits until the device has finished what this rank has given to it, and calls
  // GpuRoutes::suspend(). resume() calls GpuRoutes::resume(). Both throw Error.
  void suspend(const Operation& call);
  void resume(const Operation& call);
  GpuRoutes::Memory memory() { return routes_.memory(); }

  // NCCL's communicator, if there is one.
  std::shared_ptr<nccl::NcclComm> nccl_communicator() { return routes_.nccl_communicator(); }

  c10::Device device() const { return device_; }
  // Blocks the host until the current stream and everything of this group are done. Throws Error.
  void drain(std::chrono::milliseconds timeout);
  // Blocks the host until the event is done. Throws Error(kTimeout), or what made the group fail.
  void wait_on_host(const c10::Event& event, std::chrono::milliseconds timeout, const char* what);
  void throw_if_failed() const { calls_.throw_if_failed(); }
  // The same for a call that has not begun; the error says that an earlier call failed.
  void refuse_if_failed() const;
  std::optional<Error> failure() const { return calls_.failure(); }
  // Another stream than the call's has waited for it, so wait() could not release the tensors.
  void note_wait_elsewhere() { waited_elsewhere_.store(true, std::memory_order_relaxed); }
  // DeviceCalls::under_way()
  std::vector<std::uint64_t> under_way() const { return calls_.under_way(); }
  // Calls complete(stream) with a stream that has waited for this call and for no later call of the
  // group. `complete` must run no callbacks.
  void complete_future(const InFlight& call, const std::function<void(const c10::Stream&)>& complete);

  // The watch calls both, each on a thread of its own; false: nothing is in flight. poll() asks
  // CUDA how far the device is, which may block, and releases what is done. look() never calls
  // CUDA, whatever blocks other threads in it (gpu/device_calls.h).
  bool poll() override;
  bool look() override { return calls_.look(); }
  void abort(const std::string& why);

 private:
  void tell_waiters();
  GpuRouteOptions marking(GpuRouteOptions options);
  // All with launch_mutex_ held.
  void settle();
  bool record_last(c10::Event& event);
  void follow(const c10::Stream& stream);
  bool is_idle();
  // Marks the end of the earlier calls after a pause, so that poll() can tell whether the device is
  // in one of them or in the next.
  void mark_what_came_before();
  // Records an event behind the last launch. `calls`: how many calls there were up to it. `surely`:
  // replaces the last marker if there are too many.
  void mark(std::uint64_t calls, bool surely = false);
  // Only poll() calls it, also during a launch. Returns how many calls there were, if some of them
  // are not done.
  std::optional<std::uint64_t> forget_what_is_done();
  void release_what_is_done();
  void release_soon() noexcept;
  void release_what_was_captured();
  // With launch_mutex_ held, after a call that failed: `entry` keeps the tensors of what it may
  // have enqueued.
  void keep_until_done(std::shared_ptr<InFlight> entry, const c10::Stream& stream) noexcept;
  c10d::WorkResult outcome_of(const InFlight& done) const;
  // Called when another group is about to use a stream that this group was the last to use. Waits
  // for poll() and for a launch on another stream to note where the stream was, for 1 ms at most.
  void settle_before_another();

  const std::shared_ptr<Communicator> communicator_;
  const std::shared_ptr<const CompletionHooks> hooks_;
  const c10::Device device_;
  GpuRoutes routes_;
  DeviceCalls calls_;
  // The group's own streams. Streams of torch's pools are shared, so groups would wait for each
  // other.
  const std::unique_ptr<CudaDevice> streams_;
  const c10::Stream stream_, future_stream_;
  std::mutex future_mutex_;            // held while future_stream_ is used
  std::uint64_t last_future_key_ = 0;  // InFlight::key of the newest call that it waited for

  std::timed_mutex launch_mutex_;  // one launch at a time, in one order on all routes
  c10::Event last_;                // after the last launch, whichever stream it was on, once settled
  std::optional<c10::Stream> last_stream_;
  bool settled_ = true;
  std::optional<c10::Stream> captured_on_;  // the stream of the last captured call
  std::chrono::steady_clock::time_point last_launch_;
  struct Marker {
    Marker(c10::Event event, std::uint64_t calls) : event(std::move(event)), calls(calls) {}
    c10::Event event;
    const std::uint64_t calls;  // how many calls of the group came before it
  };

  std::mutex release_mutex_;                     // one thread at a time takes from the front of in_flight_
  std::atomic<bool> waited_elsewhere_{false};    // since the last launch
  std::mutex mutex_;                             // guards what follows
  std::deque<std::shared_ptr<Marker>> markers_;  // in order, while the device has not come to them
  std::deque<std::shared_ptr<InFlight>> in_flight_;
  std::deque<std::shared_ptr<InFlight>> in_capture_;  // of the graph that is being captured
};

}  // namespace altorch::backend
