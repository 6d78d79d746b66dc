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
  // Posts without blocking; the request is tested through the transport's Channel. The spans of `call` need
  // to live only until start returns. All ranks must start their calls in the same order.
  virtual void start(const Call& call, Request& request) = 0;
};

}  // namespace altorch
