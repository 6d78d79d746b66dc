// SPDX-License-Identifier: BSD-3-Clause
// Which route a call takes: a pure function of the call, of the World (which is the same on all
// ranks), and of the rules (ALTORCH_ROUTE, ALTORCH_TUNED), for host memory, for device memory and
// for windows. It is the only reader of the score table (table.h). Execution (collective.h,
// gpu_routes.h, window.h), `altorch explain` and the routes themselves call it, so `altorch
// explain` prints what happens.
//
// For CUDA tensors, a row for some kinds of call may name a route up to a size although another
// route comes first for all others: peer and host_staged up to the sizes where they are faster than
// NCCL, and host_relay if ranks share a GPU, because a flag would wait until the GPU switches
// between processes. Of an all_to_all, such a route may take the small blocks between pairs of
// ranks, and NCCL the others (gpu/ll_pairs.h).
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
// that route, or nothing. Routes that cannot carry the operations are offered, too: `takes` asks
// unsupported_reason(). The operations, at least one, are enqueued together; there are several only
// on device memory. Does not allocate; pass `takes` by std::ref, so that its std::function does not
// either. Throws what `takes` throws.
std::optional<Route> decide(std::span<const Operation> operations, const World& world, const Rules& rules,
                            const std::function<bool(const Route&)>& takes);
// The first route that can carry the operation on host memory. For a collective there is always
// one. Operation::device is not looked at. Throws Error(kInternal) for a message.
Route decide(const Operation& operation, const World& world, const Rules& rules);
// The same without ALTORCH_ROUTE, by messages among so many ranks.
Route decide_among_algorithms(const Operation& operation, int ranks);

// Why a route cannot carry these operations, as a clause, or nothing. `capturing`: into a CUDA
// graph; null: not; else the rules, which may name a protocol that cannot.
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
