// SPDX-License-Identifier: BSD-3-Clause
// Which route a call takes: a pure function of the call, of what the ranks know alike, and of ALTORCH_ROUTE, for host
// memory and for device memory. Execution (collective.h, gpu_routes.h), `altorch explain` and the routes themselves
// ask here, so that what is explained is what happens.
//
// On GPUs small collectives take another one before its turn: host_staged beside NCCL, since the host needs half of
// the time for it (of an all_to_all the blocks of those pairs of ranks that have little for each other:
// small_pairs.h), and host_relay where ranks share a GPU, since processes take turns on it, and flags wait for each.
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string>

#include "engine/route/route.h"
#include "engine/route/rules.h"
#include "engine/route/world.h"

namespace altorch {

// Offers one route after another to `takes`, the best first, until it takes one. The operations are enqueued
// together; several of them only on a device. Allocates nothing, and neither does a std::ref to what takes.
std::optional<Route> decide(std::span<const Operation> operations, const World& world, const Rules& rules,
                            const std::function<bool(const Route&)>& takes);
// The first that can carry it, on host memory: for a collective there is always one. Throws Error(kInternal).
Route decide(const Operation& operation, const World& world, const Rules& rules);

// Why a route cannot carry these operations, as a clause, or nothing. `capturing`: into a CUDA graph.
std::optional<std::string> unsupported_reason(const Route& route, std::span<const Operation> operations,
                                              const World& world, bool capturing);

// Whether the call's reduction goes through staging memory there (staging.h).
bool is_staged(const Route& route, const Operation& operation, const World& world);

}  // namespace altorch
