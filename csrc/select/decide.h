// SPDX-License-Identifier: BSD-3-Clause
// Chooses the route of one call: a pure function of the call, of the World (the same on all ranks)
// and of the rules (ALTORCH_ROUTE, ALTORCH_TUNED). It walks the rows of table.h in order, for host
// memory, device memory and windows. The transport of a group (On::kLinks) is not chosen here:
// Group._create in python/altorch/_backend.py does that. collective.cpp, gpu_routes.cpp, window.cpp
// and `altorch explain` call it, so `altorch explain` prints what happens.
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string>

#include "select/route.h"
#include "select/rules.h"
#include "select/world.h"

namespace altorch {

// Thread rules of this file: pure functions, any thread.

// Offers one route after another to `takes`, the best first, until `takes` returns true. Returns
// that route, or nothing. Operation::device decides between host and device memory; on device
// memory the World must come from World::of(). Routes that cannot carry the operations are offered,
// too: `takes` asks unsupported_reason(). The operations, at least one, are enqueued together;
// there are several only on device memory. Does not allocate; pass `takes` by std::ref, so that its
// std::function does not either. Throws what `takes` throws.
std::optional<Route> decide(std::span<const Operation> operations, const World& world, const Rules& rules,
                            const std::function<bool(const Route&)>& takes);
// The first route that can carry the operation on host memory. For a collective there is always
// one. Operation::device is not looked at. Throws Error(kInternal) for a message.
Route decide(const Operation& operation, const World& world, const Rules& rules);
// Applies only the rows that name algorithms, and neither ALTORCH_ROUTE nor ALTORCH_TUNED.
Route decide_among_algorithms(const Operation& operation, int ranks);

// The route of CUDA tensors that ALTORCH_ROUTE asks for, or an empty view. It asks for no
// `hierarchical` where all ranks are on one node, or each on its own.
std::string_view asked_gpu_route(const Rules& rules, std::span<const Operation> operations,
                                 const World& world);

// Why a route cannot carry these operations, at least one, as a clause, or nothing. Of a window's
// route the one that opens it says so. `capturing`: null, or the group's rules if the calls are
// captured into a CUDA graph: the protocol that a rule names may not support that.
std::optional<std::string> unsupported_reason(const Route& route, std::span<const Operation> operations,
                                              const World& world, const Rules* capturing = nullptr);

// Whether the operation is a reduction that goes through staging memory (runtime/staging.h),
// whatever its route: a prescaled sum; among more than two ranks a sum or product of a half type,
// and a mean among any, unless `algorithm` combines the parts of all ranks in one step.
// `algorithm`: null for a native collective. A pure function: any thread, throws nothing.
bool needs_staging(const Operation& operation, int ranks, const Algorithm* algorithm);
// The same on this route: a native collective that finishes reductions itself needs no staging.
bool is_staged(const Route& route, const Operation& operation, const World& world);

}  // namespace altorch
