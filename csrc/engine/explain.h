// What `altorch explain` says about a call, without making it.
#pragma once

#include <string>
#include <vector>

#include "common/dtype.h"
#include "common/op_kind.h"
#include "common/reduce_op.h"

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
};

// What the command line calls them. Throw Error(kInvalidArgument).
DType dtype_named(const std::string& name);
ReduceOp reduce_op_named(const std::string& name);

// `bytes`: of the vector, or of one block. `algorithm`: empty for the one that would be chosen.
// Throws Error(kInvalidArgument) for names that do not exist.
Explanation explain(const std::string& operation, const std::string& dtype, std::int64_t bytes, int ranks,
                    int rank, const std::string& algorithm);

}  // namespace altorch
