// The other half of a transport: collectives that it carries out as a whole (MPI's own, those through shared memory).
// They are never disguised as messages, and a transport without any returns none.
#pragma once

#include <string_view>

#include "common/awaited.h"
#include "common/call.h"
#include "transports/channel.h"

namespace altorch {

class WholeCollectives {
 public:
  virtual ~WholeCollectives() = default;
  // As in ALTORCH_ROUTE and in statistics; a literal.
  virtual std::string_view name() const = 0;
  // Whether they are taken for what they offer without being asked for.
  virtual bool comes_first() const { return false; }
  virtual const char* reason() const { return ""; }  // then: why, one clause
  // Whether this call can be carried out with torch's semantics and the same bits on every rank. Decided from what
  // all ranks know alike: kind, type, reduction.
  virtual bool offers(const Call& call) const = 0;
  // Whether a rank never gets anything of another call than its own: it waits instead. Where not, the engine
  // compares before every call, which costs a barrier.
  virtual bool compares_calls() const { return false; }
  // Whether half types are added in float32, AVG is the mean and PREMUL_SUM's factors are applied. Where not, the
  // engine does so before and after.
  virtual bool finishes_reductions() const { return false; }
  // Whether the engine may do so by bringing half types as float32 and products with factors, piece by piece.
  virtual bool takes_staged() const { return false; }
  // Posts without blocking. The spans of `call` live until the call is done. `identity`: the same on all ranks that
  // are in the same call, after the same calls. All ranks must start their calls in the same order.
  virtual void start(const Call& call, std::uint64_t identity, Request& request) = 0;
  // How many steps all calls have taken so far, where that shows: who waits for the next is patient.
  virtual std::uint64_t steps() const { return 0; }
  // As Channel::test() and Channel::cancel().
  virtual State test(Request& request, std::optional<Error>& error) = 0;
  virtual bool cancel(Request& request) = 0;
  // After test() said kPending: what it waits for, where somebody may sleep until then.
  virtual Awaited awaited() const { return {}; }
};

}  // namespace altorch
