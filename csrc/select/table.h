// SPDX-License-Identifier: BSD-3-Clause
// The score table: ordered rows that say what carries which calls on host memory, on CUDA tensors
// and for windows, and which transport carries a group's messages. The first row that matches, and
// whose carrier supports the call, wins. decide() applies the rows, ALTORCH_ROUTE first; for
// On::kLinks python/altorch/_backend.py does. Others only list them.
//
// A carrier says what it cannot do; the table says what is preferred. base/protocol.h chooses
// within a carrier.
#pragma once

#include <span>
#include <string>

#include "collectives/algorithm.h"
#include "select/gpu_route.h"
#include "select/row.h"

namespace altorch {

// Thread rules of this file: pure functions, any thread.

// Best first.
std::span<const Row> rows_on(On on);

// The algorithm that a row names, or null: it names native collectives. `row`: an element of
// rows_on(On::kHost), not a copy.
const Algorithm* algorithm_of(const Row& row);

// The route that a row names. `row`: an element of rows_on(On::kGpu), not a copy.
const GpuRouteRow& gpu_route_of(const Row& row);

// For which calls rows name the algorithm, as a clause for people.
std::string default_for(const Algorithm& algorithm);

}  // namespace altorch
