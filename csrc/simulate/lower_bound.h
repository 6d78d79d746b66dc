// SPDX-License-Identifier: BSD-3-Clause
// A lower bound for a collective in the alpha-beta-gamma model, for any algorithm:
// ceil(log2(nodes)) rounds of latency, and the larger of the bytes of the busiest port and the
// reduction, which the ranks of a node share. On one node the ranks take the place of the nodes.
// Source: Chan, Heimlich, Purkayastha and van de Geijn, "Collective communication: theory,
// practice, and experience", 2007; with several ranks a node, the port is the node's.
#pragma once

#include <cstdint>

#include "base/op_kind.h"
#include "simulate/network.h"

namespace altorch {

// Seconds. `bytes`: of the vector, or of one block. A pure function; any thread.
double lower_bound_seconds(OpKind kind, std::int64_t bytes, const Network& network);

}  // namespace altorch
