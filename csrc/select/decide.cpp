// SPDX-License-Identifier: BSD-3-Clause
#include "select/decide.h"

#include <algorithm>

#include "base/error.h"
#include "select/defaults.h"
#include "select/gpu_defaults.h"
#include "select/table.h"

namespace altorch {
namespace {

using Takes = std::function<bool(const Route&)>;

Route by(const GpuRouteRow& row, const char* reason, bool early = false) {
  return {.name = row.name, .reason = reason, .row = &row, .early = early};
}

// `name`: of a row.
const GpuRouteRow& gpu_route_named(std::string_view name) {
  return **std::ranges::find(gpu_route_rows(), name, &GpuRouteRow::name);
}

// Whether every step rounds.
bool accumulates(ReduceOp op) {
  const BinaryOp binary = kReduceOps[op].of_numbers;
  return binary == BinaryOp::kSum || binary == BinaryOp::kProduct;
}

// One clause, or null.
const char* host_unsupported_reason(const Route& route, const Operation& operation, const World& world) {
  if (route.algorithm)
    return route.algorithm->even_only && operation.uneven() ? "it is for blocks of one size" : nullptr;
  if (route.native == kNoNative) return NativeRow{}.lacks;
  const NativeRow& row = world.native[static_cast<std::size_t>(route.native)];
  const bool lacks_precision = is_staged(route, operation, world) && !row.takes_staged;
  return !lacks_precision && row.offers(operation) ? nullptr : row.lacks;
}

std::optional<Route> on_host(const Operation& operation, const World& world, const Rules& rules,
                             const Takes& takes) {
  const std::int64_t bytes = payload_bytes(operation, world.ranks);
  for (const Rules::Rule& rule : rules.all()) {
    if (!rule.gpu_route.empty() || !rule.applies(operation, bytes, world.ranks)) continue;
    const Route ruled{.name = rule.algorithm ? rule.algorithm->name : rule.native,
                      .reason = rule.tuned ? kTuned : kByRule,
                      .algorithm = rule.algorithm,
                      .native = world.native_named(rule.native),
                      .protocol = rule.protocol};
    if (takes(ruled)) return ruled;
  }
  for (std::size_t i = 0; i < world.native.size(); ++i) {
    if (!world.native[i].is_preferred) continue;
    const Route native{
        .name = world.native[i].name, .reason = world.native[i].reason, .native = static_cast<int>(i)};
    if (takes(native)) return native;
  }
  const Route usual = default_route(operation, world.ranks, bytes);
  return takes(usual) ? std::optional(usual) : std::nullopt;
}

std::optional<Route> before_its_turn(const Operation& operation, const World& world, const Takes& takes) {
  bool pairs_are_taken = false;
  const GpuRouteRow* refused = nullptr;
  for (const GpuDefaultRow& row : gpu_default_rows()) {
    if (!row.serves(operation, world) || (row.in_pairs ? pairs_are_taken : row.route == refused)) continue;
    Route route = by(*row.route, row.reason, /*early=*/true);
    route.in_pairs = row.in_pairs;
    if (takes(route)) return route;
    if (!row.in_pairs) refused = row.route;
    // Which of them serves all ranks know alike; whether a rank has small blocks, only itself.
    pairs_are_taken = row.in_pairs && !world.missing[index_of(*row.route)];
  }
  return std::nullopt;
}

std::optional<Route> on_device(std::span<const Operation> operations, const World& world, const Rules& rules,
                               const Takes& takes) {
  const std::string_view asked = rules.gpu_route(operations.front(), world.ranks);
  if (asked.empty() && operations.size() == 1) {
    const std::string_view tuned = rules.tuned_gpu_route(operations.front(), world.ranks);
    if (!tuned.empty()) {
      const Route fastest = by(gpu_route_named(tuned), kTuned, /*early=*/true);
      if (takes(fastest)) return fastest;
    }
    if (const auto early = before_its_turn(operations.front(), world, takes)) return early;
  }
  for (const GpuRouteRow* row : gpu_route_rows()) {
    const bool named = asked == row->name;
    if (!asked.empty() && !named && asked != row->fallback_for && !row->forced) continue;
    const Route route = by(*row, named ? kByRule : row->reason);
    if (takes(route)) return route;
  }
  return std::nullopt;
}

}  // namespace

std::optional<Route> decide(std::span<const Operation> operations, const World& world, const Rules& rules,
                            const Takes& takes) {
  const Operation& first = operations.front();
  return !first.on_gpu() ? on_host(first, world, rules, takes) : on_device(operations, world, rules, takes);
}

Route decide(const Operation& operation, const World& world, const Rules& rules) {
  const auto taken = on_host(operation, world, rules, [&](const Route& route) {
    return !host_unsupported_reason(route, operation, world);
  });
  if (!taken) throw Error(ErrorKind::kInternal, std::string("nothing carries ") + name_of(operation.kind));
  return *taken;
}

bool is_staged(const Route& route, const Operation& operation, const World& world) {
  const bool finished =
      route.native != kNoNative && world.native[static_cast<std::size_t>(route.native)].finishes_reductions;
  return !finished && needs_staging(operation, world.ranks, route.algorithm);
}

bool needs_staging(const Operation& operation, int ranks, const Algorithm* algorithm) {
  if (!operation.reduces()) return false;
  if (operation.op == ReduceOp::kPremulSum) return true;
  if (algorithm && algorithm->combines) return false;
  // With two ranks one rounding follows one addition: staging would change nothing, but for a mean,
  // whose sum may be too large for the type.
  return (ranks > 2 || operation.op == ReduceOp::kAvg) && is_half(operation.dtype) &&
         accumulates(operation.op);
}

std::optional<std::string> unsupported_reason(const Route& route, std::span<const Operation> operations,
                                              const World& world, const Rules* capturing) {
  if (!route.row) {
    const char* why = host_unsupported_reason(route, operations.front(), world);
    return why ? std::optional<std::string>(why) : std::nullopt;
  }
  const GpuRouteRow& row = *route.row;
  if (const auto& missing = world.missing[index_of(row)]) return missing;
  for (const Operation& operation : operations) {
    if (auto why = row.unsupported_to(operation)) return why;
    if (world.deterministic && !row.in_rank_order && operation.reduces() && !is_integral(operation.dtype))
      return "the order of its sums depends on the size, which ALTORCH_DETERMINISTIC=1 forbids";
    if (!capturing) continue;
    const std::string_view asked = capturing->gpu_protocol(operation, world.ranks, row.name);
    if (auto why = row.capture_unsupported_reason(operation, world, asked))
      return "it cannot be captured into a CUDA graph: " + *why;
  }
  return std::nullopt;
}

}  // namespace altorch
