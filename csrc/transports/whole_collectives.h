// The other half of a transport: collectives that a library carries out as a whole (MPI's own, NCCL's). They
// are never disguised as messages, and a transport without any returns none.
#pragma once

#include <cstdint>
#include <span>

#include "common/dtype.h"
#include "common/op_kind.h"
#include "common/reduce_op.h"
#include "transports/channel.h"

namespace altorch {

// Of messages too where the library has them: then `root` is the peer. Buffers follow the conventions of
// collectives/schedule.h (Problem), counts are in elements.
struct CollectiveCall {
  OpKind kind;
  DType dtype = DType::kUInt8;
  ReduceOp op = ReduceOp::kSum;
  int root = 0;
  const void* input = nullptr;
  void* output = nullptr;
  std::int64_t count = 0;
  std::span<const std::int64_t> input_counts = {};
  std::span<const std::int64_t> output_counts = {};
  double factor = 1.0;     // PREMUL_SUM only
  std::int64_t apart = 0;  // all_to_all: as in engine/operation.h

  bool uneven() const { return !input_counts.empty() || !output_counts.empty(); }
  bool reduces() const {
    return kind == OpKind::kAllReduce || kind == OpKind::kReduce || kind == OpKind::kReduceScatter;
  }
};

class WholeCollectives {
 public:
  virtual ~WholeCollectives() = default;
  // Whether the library can carry out this call with torch's semantics and the same bits on every rank.
  virtual bool offers(const CollectiveCall& call) const = 0;
  // Posts without blocking; the request is tested through the transport's Channel. The spans of `call` need
  // to live only until start returns. All ranks must start their calls in the same order.
  virtual void start(const CollectiveCall& call, Request& request) = 0;
};

}  // namespace altorch
