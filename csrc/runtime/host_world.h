// SPDX-License-Identifier: BSD-3-Clause
// The World of a group that need not exist, for calls on host memory: with MPI, and with memory
// that the ranks of each node share. `altorch explain` and the routes that relay through the host
// ask it. The ranks fill one node after another.
#pragma once

#include "base/operation.h"
#include "collectives/hierarchical/layout.h"
#include "select/route.h"
#include "select/world.h"

namespace altorch {

hierarchical::Layout layout_on_nodes(int ranks, int nodes, int rank = 0);
World host_world(int ranks, int nodes);
// What carries the call in such a group.
Route route_on_host(Operation operation, int ranks, int nodes);

}  // namespace altorch
