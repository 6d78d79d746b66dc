// The other half of a transport: collectives that a library carries out as a whole (MPI's own, NCCL's). They
// are never disguised as messages, and a transport without any returns none.
#pragma once

#include "common/call.h"
#include "transports/channel.h"

namespace altorch {

class WholeCollectives {
 public:
  virtual ~WholeCollectives() = default;
  // Whether the library can carry out this call with torch's semantics and the same bits on every rank.
  virtual bool offers(const Call& call) const = 0;
  // Whether ranks that call different things get Error(kMismatch) from it. Where not, the engine compares before
  // every call, which costs a barrier.
  virtual bool compares_calls() const { return false; }
  // Posts without blocking. The spans of `call` need to live only until start returns. `fingerprint`: what all ranks
  // must have alike. All ranks must start their calls in the same order.
  virtual void start(const Call& call, std::uint64_t fingerprint, Request& request) = 0;
  // As Channel::test() and Channel::cancel().
  virtual State test(Request& request, std::optional<Error>& error) = 0;
  virtual bool cancel(Request& request) = 0;
};

}  // namespace altorch
