// What `altorch explain` says about a call, without making it.
#pragma once

#include <string>
#include <vector>

#include "common/dtype.h"
#include "common/op_kind.h"
#include "common/reduce_op.h"
#include "engine/operation.h"

namespace altorch {

struct Explanation {
  std::string route;      // "mpi", and how it gets there
  std::string algorithm;  // or "native"
  std::string reason;
  std::string rounds;  // of one rank, as text
  double seconds = 0;  // by the cost model
  struct Alternative {
    std::string name;
    double seconds;
  };
  std::vector<Alternative> alternatives;
  struct Other {
    std::string name, why_not;
  };
  std::vector<Other> others;  // routes that are not taken
};

// What the command line calls them. Throw Error(kInvalidArgument).
OpKind kind_named(const std::string& name);
DType dtype_named(const std::string& name);
ReduceOp reduce_op_named(const std::string& name);

// Whether ALTORCH_ROUTE may give such a call to MPI's own collectives.
bool mpi_offers(const Operation& asked, int ranks);

// `bytes`: of the vector, or of one block. `algorithm`: empty for the one that would be chosen.
// Throws Error(kInvalidArgument) for names that do not exist.
Explanation explain(const std::string& operation, const std::string& dtype, std::int64_t bytes, int ranks,
                    int rank, const std::string& algorithm);

// The same for tensors on GPUs: `ranks` on `nodes` nodes, one GPU each unless they share GPUs, where nothing
// else stands in the way of any route.
Explanation explain_on_gpus(const std::string& operation, const std::string& dtype, std::int64_t bytes,
                            int ranks, int nodes, bool share_gpus);

}  // namespace altorch
