// SPDX-License-Identifier: BSD-3-Clause
#include "select/decide.h"

#include <algorithm>

#include "base/error.h"
#include "select/gpu_route.h"
#include "select/table.h"

namespace altorch {
namespace {

using Takes = std::function<bool(const Route&)>;

// `name`: of a row.
const GpuRouteRow& gpu_route_named(std::string_view name) {
  return **std::ranges::find(gpu_route_rows(), name, &GpuRouteRow::name);
}

Error carries_nothing(const Operation& operation) {
  return {ErrorKind::kInternal, std::string("nothing carries ") + name_of(operation.kind)};
}

// Whether every step rounds.
bool accumulates(ReduceOp op) {
  const BinaryOp binary = kReduceOps[op].of_numbers;
  return binary == BinaryOp::kSum || binary == BinaryOp::kProduct;
}

// One clause, or null.
const char* host_unsupported_reason(const Route& route, const Operation& operation, const World& world) {
  if (route.algorithm) {
    if (operation.reduces() && is_exact(operation.op) && !route.algorithm->combines)
      return "it adds in several steps, each of which rounds, and the sums of this group are exact";
    return route.algorithm->even_only && operation.uneven() ? "it is for blocks of one size" : nullptr;
  }
  if (route.native == kNoNative) return NativeRow{}.lacks;
  const NativeRow& row = world.native[static_cast<std::size_t>(route.native)];
  const bool lacks_precision = is_staged(route, operation, world) && !row.takes_staged;
  return !lacks_precision && row.offers(operation) ? nullptr : row.lacks;
}

std::optional<Route> on_host(const Operation& operation, const World& world, const Rules& rules,
                             const Takes& takes) {
  const std::int64_t bytes = payload_bytes(operation, world.ranks);
  for (const Rules::Rule& rule : rules.all()) {
    if (!rule.is_for_host() || !rule.applies(operation, bytes, world.size())) continue;
    const Route ruled{.name = rule.algorithm ? rule.algorithm->name : rule.native,
                      .reason = rule.tuned ? kTuned : kByRule,
                      .algorithm = rule.algorithm,
                      .native = world.native_named(rule.native),
                      .protocol = rule.protocol};
    if (takes(ruled)) return ruled;
  }
  for (const Row& row : rows_on(On::kHost)) {
    if (!row.serves(operation, world)) continue;
    Route route{.name = row.carrier, .reason = row.reason, .algorithm = algorithm_of(row)};
    if (!route.algorithm && (route.native = world.native_named(row.carrier)) == kNoNative) continue;
    if (takes(route)) return route;
  }
  return std::nullopt;
}

Route by(const Row& row, std::string_view asked) {
  const GpuRouteRow& carrier = gpu_route_of(row);
  return {.name = carrier.name,
          .reason = asked == carrier.name ? kByRule : row.reason,
          .row = &carrier,
          .in_pairs = row.limits.in_pairs,
          .early = !row.is_general()};
}

// What ALTORCH_ROUTE names, then what stands in for it.
std::optional<Route> as_asked(std::string_view asked, const Operation& first, const World& world,
                              const Takes& takes) {
  for (const bool named : {true, false}) {
    for (const Row& row : rows_on(On::kGpu)) {
      if (!row.is_general() || !row.serves(first, world)) continue;
      const Route route = by(row, asked);
      const bool allowed =
          named ? asked == route.name || route.row->forced : route.row->is_fallback_for(asked);
      if (allowed && takes(route)) return route;
    }
  }
  return std::nullopt;
}

std::optional<Route> on_device(std::span<const Operation> operations, const World& world, const Rules& rules,
                               const Takes& takes) {
  const Operation& first = operations.front();
  const std::string_view asked = asked_gpu_route(rules, operations, world);
  if (!asked.empty()) return as_asked(asked, first, world, takes);
  const bool early_rows = operations.size() == 1;
  const std::string_view tuned = early_rows ? rules.tuned_gpu_route(first, world.size()) : "";
  if (!tuned.empty() && !gpu_route_named(tuned).named_only_reason(first)) {
    const GpuRouteRow& fastest = gpu_route_named(tuned);
    const Route route{.name = fastest.name, .reason = kTuned, .row = &fastest, .early = true};
    if (takes(route)) return route;
  }
  bool pairs_are_taken = false;
  const GpuRouteRow* refused = nullptr;  // has refused this call already
  for (const Row& row : rows_on(On::kGpu)) {
    if ((!row.is_general() && !early_rows) || !row.serves(first, world)) continue;
    if (!row.is_general() && (row.limits.in_pairs ? pairs_are_taken : &gpu_route_of(row) == refused))
      continue;
    if (gpu_route_of(row).named_only_reason(first)) continue;
    const Route route = by(row, asked);
    if (takes(route)) return route;
    // Whether a rank has small blocks only itself knows, so a row with in_pairs may be refused on
    // some ranks alone. All of them use the same route for such blocks: the first that is
    // supported.
    if (row.limits.in_pairs)
      pairs_are_taken = !world.missing[index_of(*route.row)];
    else if (route.early)
      refused = route.row;
  }
  return std::nullopt;
}

// Offers what ALTORCH_ROUTE names first.
std::optional<Route> of_window(const Operation& operation, const World& world, const Rules& rules,
                               const Takes& takes) {
  const auto rows = rows_on(operation.on_gpu() ? On::kGpuWindow : On::kHostWindow);
  for (const bool named : {true, false}) {
    for (const Row& row : rows) {
      if ((row.carrier == rules.window()) != named || (!named && !row.serves(operation, world))) continue;
      const Route route{.name = row.carrier, .reason = named ? kByRule : row.reason};
      if (takes(route)) return route;
    }
  }
  return std::nullopt;
}

}  // namespace

std::optional<Route> decide(std::span<const Operation> operations, const World& world, const Rules& rules,
                            const Takes& takes) {
  const Operation& first = operations.front();
  if (is_one_sided(first.kind)) return of_window(first, world, rules, takes);
  return !first.on_gpu() ? on_host(first, world, rules, takes) : on_device(operations, world, rules, takes);
}

Route decide(const Operation& operation, const World& world, const Rules& rules) {
  const auto taken = on_host(operation, world, rules, [&](const Route& route) {
    return !host_unsupported_reason(route, operation, world);
  });
  if (!taken) throw carries_nothing(operation);
  return *taken;
}

Route decide_among_algorithms(const Operation& operation, int ranks) {
  const World world{.ranks = ranks};
  for (const Row& row : rows_on(On::kHost)) {
    const Algorithm* algorithm = algorithm_of(row);
    if (algorithm && row.serves(operation, world) &&
        !host_unsupported_reason({.algorithm = algorithm}, operation, world))
      return {.name = row.carrier, .reason = row.reason, .algorithm = algorithm};
  }
  throw carries_nothing(operation);
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

std::string_view asked_gpu_route(const Rules& rules, std::span<const Operation> operations,
                                 const World& world) {
  const std::string_view asked = rules.gpu_route(operations, world.size());
  return world.nodes.empty() && asked == gpu_rows::hierarchical.name ? std::string_view() : asked;
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
    if (auto why = row.unsupported_to(operation, world)) return why;
    if (operation.reduces() && is_quantized(operation.op) && !(row.sums_in_8_bits && world.linked))
      return "sums in 8 bits need peer, between GPUs that NVLink links";
    if (world.deterministic && !row.in_rank_order && operation.reduces() && !is_integral(operation.dtype))
      return "the order of its sums depends on the size, which ALTORCH_DETERMINISTIC=1 forbids";
    if (!capturing) continue;
    const std::string_view asked = capturing->gpu_protocol(operation, world.size(), row.name);
    if (auto why = row.capture_unsupported_reason(operation, world, asked))
      return "it cannot be captured into a CUDA graph: " + *why;
  }
  return std::nullopt;
}

}  // namespace altorch
