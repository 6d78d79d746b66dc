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
#include "select/table.h"

namespace altorch {

// Why this process cannot use each GPU route on this device. For `altorch info`.
struct RouteUnsupportedReason {
  std::string_view route;
  std::string why;  // empty: nothing
};
std::vector<RouteUnsupportedReason> gpu_route_unsupported_reasons(int device);

// Thread rules: choose() by one thread at a time, in the same order on every rank; the others by
// any.
class GpuRoutes : public DeviceCarrier {
 public:
  // Collective over the group: the ranks tell each other what they have. `first`: the operation
  // that it is made for. Throws Error, when a rank does not come.
  GpuRoutes(Communicator& communicator, const Operation& first, std::chrono::milliseconds timeout,
            GpuRouteOptions options);
  ~GpuRoutes() override;

  // Chooses the route of operations that are enqueued together, and makes it with the other ranks
  // if it is new; at the first call also those that open at once (select/row.h). Then, where ranks
  // share memory and no graph is captured, compares the call with theirs (agreement.h). Under
  // capture it refuses a route that is not open yet, unless all groups open it at once. Throws
  // Error: kUnsupported, with the reason of each route, or while the group is suspended;
  // kInvalidArgument if a rank's messages to itself have no counterpart; kMismatch; kTransport if
  // the group is aborted; and what a wait for the other ranks throws.
  GpuRoute& choose(std::span<const Operation> operations, bool capturing);
  // Gives the operations to the route, and sees to it that their results are marked if they are
  // aborted.
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

  std::optional<Error> failure() override;
  void abort(const std::string& why) override;
  void end_replays(const std::string& why) override;

 private:
  GpuRoute& find(std::span<const Operation> operations, bool capturing);
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
  void make_guard();
  bool has_guard();

  Communicator& communicator_;
  const int device_;
  const std::chrono::milliseconds timeout_;
  GpuRouteOptions options_;
  const Rules rules_;
  World world_;
  std::optional<Agreement> agreement_;      // where the ranks share memory
  std::string kernels_unsupported_reason_;  // why this rank has no kernels, and so can mark nothing
  std::mutex mutex_;                        // guards routes_ and guard_
  std::shared_ptr<PoisonGuard> guard_;
  std::vector<std::shared_ptr<GpuRoute>> routes_;   // by place in the table
  std::vector<std::unique_ptr<LlPairs>> ll_pairs_;  // by place, over it and NCCL
  std::atomic<bool> in_graphs_{false};              // some of what they carried
  std::atomic<bool> suspended_{false};
  int suspensions_ = 0, exchanges_ = 0;
};

}  // namespace altorch
