// SPDX-License-Identifier: BSD-3-Clause
// The ranks of a group that spans several nodes, as they lie on them.
#pragma once

#include <vector>

#include "transports/native_collectives.h"

namespace altorch {

// What the transport of such a group knows of it.
struct Node {
  std::vector<int> node_of_rank;   // by rank; nodes are numbered in the order of their first ranks
  std::vector<int> leader_places;  // by node: the place of its leader among its ranks
  NativeCollectives* shared =
      nullptr;  // among the ranks of this rank's node, in their order; null: it is alone there
};

}  // namespace altorch
