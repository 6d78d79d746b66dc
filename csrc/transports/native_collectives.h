// SPDX-License-Identifier: BSD-3-Clause
// The native collectives of a transport: those that its library carries out itself (MPI's own,
// those through shared memory). A transport without any returns none. Thread rules: one thread at a
// time, and one call in flight: the next one starts after test() returned kDone, or after cancel().
#pragma once

#include <array>
#include <span>
#include <string_view>

#include "base/call.h"
#include "base/wait_target.h"
#include "transports/channel.h"

namespace altorch {

// The names of all native collectives, as in ALTORCH_ROUTE and in statistics: MPI's own; through
// memory that the ranks share; both, for a group that spans nodes
// (runtime/hierarchical_collectives.h).
inline constexpr std::string_view kMpiCollectives = "native", kShmCollectives = "shm",
                                  kHierarchicalCollectives = "hierarchical";
inline constexpr std::array kNativeNames{kMpiCollectives, kShmCollectives, kHierarchicalCollectives};
// Behind "shm/": the protocols of all_reduce and reduce; of all_gather, gather, scatter and
// all_to_all; none of other operations.
std::span<const std::string_view> shm_protocols(OpKind kind);

class NativeCollectives {
 public:
  virtual ~NativeCollectives() = default;
  // One of kNativeNames: select/table.h says which come before the algorithms.
  virtual std::string_view name() const = 0;
  // Whether they can carry out this call with torch's semantics and the same bits on every rank.
  // The answer depends only on what is the same on all ranks: kind, type, reduction.
  virtual bool offers(const Call& call) const = 0;
  // Whether they detect that ranks make different calls: no rank receives data of another call. If
  // not, the engine compares the ranks' calls first, which costs a barrier.
  virtual bool compares_calls() const { return false; }
  // Whether they accumulate half types in float32, and support AVG and PREMUL_SUM. If not, the
  // engine does this itself, before and after the call.
  virtual bool finishes_reductions() const { return false; }
  // Whether the engine may split a call into pieces in staging memory (half types as float32,
  // scaled inputs; see runtime/staging.h), and start one native call for each piece.
  virtual bool takes_staged() const { return false; }
  // Posts the call without blocking. offers(call) must be true. `call` is copied; its buffers and
  // spans must live until the call is done. Failures come back from test(); after a throw, as after
  // a failure, the caller cancels. `identity`: a hash of this call and of the group's collectives
  // before it, to compare among ranks. `protocol`: the one that ALTORCH_ROUTE names behind their
  // name, or empty; what cannot carry the call is left aside. All ranks must start their calls in
  // the same order.
  virtual void start(const Call& call, std::uint64_t identity, std::string_view protocol,
                     Request& request) = 0;
  // The number of steps that all calls have taken so far, if the library shows it: progress
  // restarts the spin budget.
  virtual std::uint64_t steps() const { return 0; }
  // As Channel::test() and Channel::cancel(). Every request must end by one of them: it may own
  // memory.
  virtual State test(Request& request, std::optional<Error>& error) = 0;
  virtual bool cancel(Request& request) = 0;
  // After test() returned kPending: what the call waits for, so that the caller may sleep until
  // then.
  virtual WaitTarget wait_target() const { return {}; }
};

}  // namespace altorch
