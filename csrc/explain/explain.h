// SPDX-License-Identifier: BSD-3-Clause
// What `altorch explain` says about a call, without making it.
#pragma once

#include <string>
#include <vector>

#include "base/dtype.h"
#include "base/op_kind.h"
#include "base/reduce_op.h"

namespace altorch {

struct Question {
  std::string operation, dtype;
  std::int64_t bytes = 0;  // of the vector, or of one block
  int ranks = 1;
  int rank = 0;           // whose rounds to show
  std::string algorithm;  // empty: the one that would be chosen
  // Of tensors on GPUs: ranks on so many nodes, one GPU each unless they share GPUs, where nothing
  // else stands in the way of any route.
  bool on_gpus = false;
  int nodes = 1;
  bool share_gpus = false;
  bool linked = false;    // the GPUs of a node to each other, by NVLink
  bool over_mpi = false;  // the group's messages
};

struct Explanation {
  std::string route;
  std::string algorithm;  // or "native"
  std::string protocol;   // of the route, or of what "native" stands for; empty: it has one way
  std::string reason;
  std::string rounds;  // of one rank, as text
  double seconds = 0;  // by the cost model
  struct Alternative {
    std::string name;
    double seconds;
    std::string chosen_for;  // for which calls, unasked
  };
  std::vector<Alternative> alternatives;
  struct Other {
    std::string name, unsupported_reason;
  };
  std::vector<Other> others;  // routes that are not taken, and protocols: "peer/ll"
};

// What the command line calls them. Throw Error(kInvalidArgument).
OpKind kind_named(const std::string& name);
DType dtype_named(const std::string& name);
ReduceOp reduce_op_named(const std::string& name);

// Throws Error(kInvalidArgument) for names that do not exist, and for what would be refused.
Explanation explain(const Question& question);

}  // namespace altorch
