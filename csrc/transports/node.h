// SPDX-License-Identifier: BSD-3-Clause
// On which node each rank of a group lies, for a group that spans several nodes.
#pragma once

#include <vector>

#include "transports/native_collectives.h"

namespace altorch {

// Made by the group's transport.
struct Node {
  std::vector<int> node_of_rank;   // by rank; nodes are numbered in the order of their first ranks
  std::vector<int> leader_places;  // by node: the leader's index among the node's ranks
  NativeCollectives* shared =
      nullptr;  // among the ranks of this rank's node, in their order; null: it is alone there
};

}  // namespace altorch
