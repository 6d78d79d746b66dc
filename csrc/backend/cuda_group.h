// What a process group has on one GPU: the routes that operations take, a stream of its own, and what is in
// flight there.
//
// A synchronous call is enqueued on the caller's current stream: no other stream, nothing to wait for. An
// asynchronous one runs on the group's own high-priority stream, after what the current stream held;
// Work::wait() orders the current stream after it. The host never waits, but in barrier() and in wait() with
// a timeout.
#pragma once

#include <c10/core/Event.h>
#include <c10/core/Stream.h>

#include <atomic>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <torch/csrc/distributed/c10d/Work.hpp>

#include "backend/on_error.h"
#include "backend/prepared_call.h"
#include "device/cuda_device.h"
#include "engine/communicator.h"
#include "engine/gpu_routes.h"
#include "engine/task.h"

namespace altorch::backend {

// What an asynchronous call leaves behind until the device is done.
struct InFlight {
  explicit InFlight(c10::Event event) : end(std::move(event)) {}
  c10::Event end;
  std::mutex mutex;                 // guards tensors
  std::vector<at::Tensor> tensors;  // kept until somebody has waited, or until the end
  std::atomic<bool> failed{false};  // it was under way when the group failed
};

// A call that is not known to be done.
struct Launched {
  Operation operation;  // remembered()
  Vigil vigil;
};

// Thread rules: any thread.
class CudaGroup : public std::enable_shared_from_this<CudaGroup> {
 public:
  // Collective over the group. `first`: the operation that it is made for, on its device. Throws Error.
  CudaGroup(std::shared_ptr<Communicator> communicator, const Operation& first,
            std::chrono::milliseconds timeout, bool high_priority, OnError on_error, GpuRouteOptions options);
  ~CudaGroup();

  // Makes the route that this operation takes; collective over the group.
  void connect(const Operation& usual);
  // Enqueues the calls, as one group where they are several. Null where nobody has to wait: not `async`.
  c10::intrusive_ptr<c10d::Work> launch(c10d::OpType type, std::vector<PreparedCall> calls, bool async);

  // NCCL's communicator, if there is one.
  nccl::Communicator* nccl_communicator() { return routes_.nccl_communicator(); }

  c10::Device device() const { return device_; }
  // Blocks the host until the current stream and everything of this group are done. Throws Error.
  void drain(std::chrono::milliseconds timeout);
  // Blocks the host until the event is done. Throws Error(kTimeout), or what made the group fail.
  void wait_on_host(const c10::Event& event, std::chrono::milliseconds timeout, const char* what);
  void throw_if_failed() const;
  std::optional<Error> failure() const;
  // A stream that waits for one operation and for nothing else, for Futures.
  c10::Stream future_stream() const { return future_stream_; }

  // Both called by the watch, by a thread each; false when nothing is under way. poll() asks CUDA how far the
  // device is, which may hold it up, and releases what is done. look() calls nothing of CUDA's: it ends the
  // group when a peer is lost or a deadline has passed, whatever holds up the others.
  bool poll();
  bool look();
  void abort(const std::string& why);

 private:
  // The caller is about to give it to a route, which may hold the host up (NCCL connects with peers then).
  void enter(const Operation& operation);
  // A route did not take it, or a graph did.
  void withdraw();
  std::optional<Error> route_failure();
  void end_in_flight();
  // All with launch_mutex_ held.
  void settle();
  bool is_idle();
  void forget_what_is_done();
  void release_what_is_done();
  // With mutex_ held: why what is under way cannot end, if that is known.
  std::optional<Error> trouble(std::chrono::steady_clock::time_point now);
  // Says what went wrong, to everybody, and ends what is under way.
  void fail(const Operation& operation, const Error& error);
  // Another group is about to put something on a stream that this one was the last to use.
  void settle_before_another();

  const std::shared_ptr<Communicator> communicator_;
  const c10::Device device_;
  const OnError on_error_;
  GpuRoutes routes_;
  // Streams of nobody else: in torch's pools, groups would wait for each other's.
  const std::unique_ptr<CudaDevice> streams_;
  const c10::Stream stream_, future_stream_;

  std::mutex launch_mutex_;  // one launch at a time, in one order on all routes
  c10::Event last_;          // after the last launch, whichever stream it was on, once settled
  std::optional<c10::Stream> last_stream_;
  bool settled_ = true;
  struct Marker {
    c10::Event event;
    std::uint64_t calls;  // that it comes after
  };
  std::deque<Marker> markers_;  // one for each look, while the device has not come to them

  mutable std::mutex mutex_;  // guards what follows
  std::deque<std::shared_ptr<InFlight>> in_flight_;
  Operation last_operation_;
  std::deque<Launched> launched_;  // in order, the latest of them
  bool entering_ = false;          // the last of them is being given to a route
  std::uint64_t calls_ = 0;        // ever launched; the last of launched_ is this one
  std::optional<Error> failure_;
  std::optional<Error> device_failure_;  // what CUDA said when it was asked
  std::atomic<bool> idle_{true};         // nothing was under way when CUDA was last asked, nor launched since
};

}  // namespace altorch::backend
