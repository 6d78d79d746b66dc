#include "engine/explain.h"

#include "collectives/printer.h"
#include "common/error.h"
#include "engine/route/rules.h"
#include "engine/staging.h"
#include "transports/mpi/collectives.h"

namespace altorch {
bool mpi_offers(const Operation& asked, int ranks) {
  return !Staging::needed(asked, ranks, nullptr) && MpiCollectives::has(asked, ranks);
}

OpKind kind_named(const std::string& name) {
  for (int kind = 0; kind < kOpKindCount; ++kind) {
    if (name == name_of(static_cast<OpKind>(kind))) return static_cast<OpKind>(kind);
  }
  throw Error(ErrorKind::kInvalidArgument, "'" + name + "' is no operation; `altorch algorithms` lists them");
}

DType dtype_named(const std::string& name) {
  for (int dtype = 0; dtype < kDTypeCount; ++dtype) {
    if (name == name_of(static_cast<DType>(dtype))) return static_cast<DType>(dtype);
  }
  throw Error(ErrorKind::kInvalidArgument, "'" + name + "' is no element type; try float32");
}

ReduceOp reduce_op_named(const std::string& name) {
  for (int op = 0; op < kReduceOpCount; ++op) {
    if (name == name_of(static_cast<ReduceOp>(op))) return static_cast<ReduceOp>(op);
  }
  throw Error(ErrorKind::kInvalidArgument, "'" + name + "' is no reduction; try SUM");
}

Explanation explain(const std::string& operation, const std::string& dtype, std::int64_t bytes, int ranks,
                    int rank, const std::string& algorithm) {
  Operation asked;
  asked.kind = kind_named(operation);
  asked.dtype = dtype_named(dtype);
  asked.count = bytes / static_cast<std::int64_t>(size_of(asked.dtype));
  Explanation said;
  said.route = "mpi: messages over the MPI library; Gloo where there is none";
  if (asked.is_message()) {
    said.algorithm = "message";
    said.reason = "one message, posted at once by the calling thread";
    return said;
  }
  const bool native_offered = mpi_offers(asked, ranks);
  Route route = Rules().choose(asked, ranks, native_offered);
  if (!algorithm.empty() && algorithm != "native") {
    route = {find_algorithm(asked.kind, algorithm), "asked for"};
    if (!route.algorithm) {
      throw Error(ErrorKind::kInvalidArgument, "'" + algorithm + "' is no algorithm of " + operation +
                                                   "; `altorch algorithms` lists them");
    }
  } else if (algorithm == "native") {
    if (!native_offered) {
      throw Error(ErrorKind::kInvalidArgument, "MPI has no " + operation + " of " + dtype + " among " +
                                                   std::to_string(ranks) +
                                                   " ranks that gives every rank the same bits; `altorch "
                                                   "algorithms` lists those that serve");
    }
    route = {nullptr, "asked for"};
  }
  said.algorithm = route.name();
  said.reason = route.reason;
  if (Staging::needed(asked, ranks, route.algorithm))
    said.reason += "; half types are added in float32, piece by piece";
  const CostModel model;
  if (route.algorithm) {
    Problem problem{.rank = rank, .size = ranks, .count = asked.count};
    if (route.algorithm->pipelined) problem.segment_count = segment_elements(asked.dtype);
    said.rounds = describe(*route.algorithm, problem);
    said.seconds = route.algorithm->cost(ranks, static_cast<double>(bytes), model);
  } else {
    said.rounds = "the MPI library's own collective, after the ranks compared what they call\n";
  }
  for (const Algorithm* each : algorithms()) {
    const Algorithm& row = *each;
    if (row.kind != asked.kind || &row == route.algorithm) continue;
    said.alternatives.push_back({std::string(row.name), row.cost(ranks, static_cast<double>(bytes), model)});
  }
  return said;
}

}  // namespace altorch
