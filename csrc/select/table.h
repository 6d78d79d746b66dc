// SPDX-License-Identifier: BSD-3-Clause
// The score table: what carries which calls, for host memory, CUDA tensors, windows and the
// messages of a group. Everything that chooses reads these rows by decide.h, and so does `altorch
// explain`. ALTORCH_ROUTE comes before them.
//
// A new way to carry calls is a row here. An executor says what it cannot do; the table says what
// is preferred. Within a route, base/protocol.h chooses.
#pragma once

#include <span>
#include <string>

#include "collectives/algorithm.h"
#include "select/gpu_route.h"
#include "select/row.h"

namespace altorch {

// Thread rules of this file: pure functions, any thread.

// Best first: the first that serves a call, and whose carrier can carry it, is taken.
std::span<const Row> rows_on(On on);

// The algorithm that a row on host memory names, or null: it names native collectives.
const Algorithm* algorithm_of(const Row& row);

// The route that a row for CUDA tensors names.
const GpuRouteRow& gpu_route_of(const Row& row);

// For which calls rows name the algorithm, as a clause for people.
std::string default_for(const Algorithm& algorithm);

}  // namespace altorch
