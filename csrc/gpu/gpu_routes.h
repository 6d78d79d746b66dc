// SPDX-License-Identifier: BSD-3-Clause
// The GPU routes of a group. A route is made when it is first chosen (select/decide.h); all end
// together.
#pragma once

#include <array>
#include <atomic>
#include <functional>
#include <memory>

#include "gpu/agreement.h"
#include "gpu/device_calls.h"
#include "gpu/gpu_route.h"
#include "gpu/ll_pairs.h"
#include "gpu/nccl/nccl_comm.h"
#include "gpu/poison_guard.h"
#include "runtime/communicator.h"
#include "select/decide.h"
#include "select/gpu_route.h"

namespace altorch {

// Why this process cannot use each GPU route on this device. For `altorch info`.
struct RouteUnsupportedReason {
  std::string_view route;
  std::string why;  // empty: nothing
};
std::vector<RouteUnsupportedReason> gpu_route_unsupported_reasons(int device);

// Thread rules: one thread at a time calls choose(), enqueue(), suspend() and resume(), in the same
// order on every rank. Any thread calls the other functions, also meanwhile.
class GpuRoutes : public DeviceCarrier {
 public:
  // Collective over the group: the ranks tell each other what they have. `first`: the operation
  // that it is made for. Throws Error, when a rank does not come.
  GpuRoutes(Communicator& communicator, const Operation& first, std::chrono::milliseconds timeout,
            GpuRouteOptions options);
  ~GpuRoutes() override;

  // Chooses the route of operations that the caller enqueues together, next. A route that is new is
  // opened with the other ranks, which may block; the first call also opens the routes that every
  // group opens with its first call (opens_at_once, select/gpu_route.h). Then, where ranks share
  // memory and no graph is captured, this rank compares its call with those of peers that have come
  // already, and does not wait for others (agreement.h): the later rank gets kMismatch, and the
  // earlier one, which may have enqueued its call, learns it from failure(). To be called once for
  // each call, with at least one operation. The route stays until suspend() or the end of this
  // object. Throws Error, and has enqueued nothing then:
  //   kUnsupported      no route carries the operations (the text has each reason), the group is
  //                     suspended, or a graph is captured and the route is not open yet
  //   kInvalidArgument  a send of this rank to itself has no receive among the operations
  //   kMismatch         a peer made another call
  //   kTransport        the group is aborted
  //   and what a wait for the other ranks throws.
  GpuRoute& choose(std::span<const Operation> operations, bool capturing);
  // Whether choose() finds a route for this call; collective like it, as routes may be opened.
  bool can_carry(const Operation& operation, bool capturing);
  // Enqueues the operations on `stream`, and does not wait for the device; may wait for peers (NCCL
  // connects). If it throws, the buffers must stay until the stream is past. Behind them it
  // enqueues a kernel that marks their results once mark_results() was called, unless the route
  // does so itself. Throws Error; some of the operations may be on the stream then.
  void enqueue(GpuRoute& route, std::span<const Operation> operations, Stream stream);
  std::optional<std::string> mark_results() override;

  // NCCL's communicator, if there is one. Any thread.
  std::shared_ptr<nccl::NcclComm> nccl_communicator();

  // Gives back the GPU's memory that calls do not need to go on later; then they are refused until
  // resume(). What graphs of any rank use stays, or is NCCL's to give back. Both collective, by the
  // thread that chooses, with nothing in flight; `call` says for how long. `unsupported_reason`:
  // why this rank cannot, or empty.
  // Throws Error(kUnsupported) where some rank
  // cannot, on all of them, and nothing has changed then; after any other the group is of no use.
  void suspend(const Operation& call, const std::string& unsupported_reason);
  void resume(const Operation& call);
  // In bytes. Any thread.
  struct Memory {
    std::uint64_t suspendable = 0, persistent = 0, on_host = 0;
    bool suspended = false;
  };
  Memory memory();

  // What has been enqueued may run after this object's end: its memory then stays until the
  // process ends. Any thread.
  void leave_to_device() { outlived_ = true; }

  std::optional<Error> failure() override;
  void abort(const std::string& why) override;
  void end_replays(const std::string& why) override;

 private:
  GpuRoute& find(std::span<const Operation> operations, bool capturing);
  // Null: no route carries them; `reasons` says why.
  GpuRoute* look_for(std::span<const Operation> operations, bool capturing, std::string& reasons);
  // Null when it turned out, on some rank, that there can be none: world_.missing says why.
  GpuRoute* made(const GpuRouteRow& row, const Operation& operation);
  // The route for its small blocks, and NCCL for the others. Null where this rank has no small
  // block.
  GpuRoute* in_pairs(GpuRoute& small, std::size_t place, const Operation& operation);
  std::vector<std::shared_ptr<GpuRoute>> all_made();
  // A new key of the store for suspend() and resume(), which exchange what the ranks can do.
  std::string next_key();
  void end_routes(bool nccl_too);
  void make_agreement(KeyValueStore& store);
  std::vector<int> all_ranks() const;
  void make_guard();
  bool has_guard();

  Communicator& communicator_;
  const int device_;
  const std::chrono::milliseconds timeout_;
  GpuRouteOptions options_;
  const Rules& rules_;  // the group's
  World world_;
  std::optional<Agreement> agreement_;      // where ranks share memory
  std::string kernels_unsupported_reason_;  // why this rank has no kernels, and so can mark nothing
  std::mutex mutex_;                        // guards routes_ and guard_
  std::shared_ptr<PoisonGuard> guard_;
  std::vector<std::shared_ptr<GpuRoute>> routes_;   // by place in the table
  std::vector<std::unique_ptr<LlPairs>> ll_pairs_;  // by place, over it and NCCL
  std::atomic<bool> in_graphs_{false};              // some of what they carried
  std::atomic<bool> outlived_{false};               // by what they carried
  std::atomic<bool> suspended_{false};
  int suspensions_ = 0, exchanges_ = 0;
};

}  // namespace altorch
