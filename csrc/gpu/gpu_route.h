// SPDX-License-Identifier: BSD-3-Clause
// A way to carry operations on device memory: it enqueues them on a stream, and the host goes on.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "base/error.h"
#include "base/operation.h"

namespace altorch {

class LlExchanges;

class GpuRoute {
 public:
  virtual ~GpuRoute() = default;
  virtual const char* name() const = 0;  // as in ALTORCH_ROUTE and in statistics

  // Enqueues the operations, which may depend on each other across ranks as one group. The stream
  // goes on after they are done. Buffers must live until then; the spans of the operations only
  // until this returns. Throws Error. Called by one thread at a time, in the same order on every
  // rank.
  virtual void enqueue(std::span<const Operation> operations, void* stream) = 0;

  // Whether the results of what was enqueued last are marked by the route itself where they do not
  // come (base/dtype.h: poison). By the thread that has enqueued.
  virtual bool marks_results() const { return false; }

  // Whether enqueue() does what comes behind an all_reduce (Call::norm), which it leaves out
  // otherwise. The same on every rank.
  virtual bool does_norm_of(const Operation&) const { return false; }

  // Not 0 once any rank has aborted the route: kernels of the other ranks then go on. Null: they go
  // on when they abort it themselves.
  virtual const std::uint32_t* abort_flag() const { return nullptr; }
  // Why no call may be captured into a graph, one clause, or null. The same on every rank; beside
  // what GpuRouteRow says, which is known before the route is opened.
  virtual const char* capture_unsupported_reason() const { return nullptr; }

  // Its way for small blocks between pairs of ranks, if it has one.
  virtual LlExchanges* ll_exchanges() { return nullptr; }
  // Whether a graph that holds what was enqueued may be replayed when the route is gone.
  virtual bool outlived_by_graphs() const { return false; }
  // The memory that this rank has taken for it, in bytes, as far as that is known.
  struct Held {
    std::uint64_t on_gpu = 0, persistent = 0, on_host = 0;  // persistent: of on_gpu, what suspend() leaves
  };
  virtual Held holds() { return {}; }
  // Whether memory of the GPU is in it, known or not.
  virtual bool takes_gpu_memory() const { return true; }

  // Called before the route is left to graphs that outlive the group: nothing aborts it any more.
  virtual void leave_to_graphs() {}

  // What went wrong since, if anything did. Any thread.
  virtual std::optional<Error> failure() = 0;
  // Ends everything in flight, on this rank only, so that streams go on. Idempotent. Any thread.
  virtual void abort(const std::string& why) = 0;
};

}  // namespace altorch
