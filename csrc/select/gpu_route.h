// SPDX-License-Identifier: BSD-3-Clause
// The routes of operations on CUDA tensors: what stands in the way of each, what it serves, how it
// is opened. A new one is a file that ends with its GpuRouteRow, its name here and in
// gpu_route.cpp, and the rows of table.cpp that choose it; `altorch explain`, `altorch info` and
// ALTORCH_ROUTE find it there.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "base/protocol.h"
#include "select/world.h"

namespace altorch {

struct GpuSource;     // gpu/gpu_source.h
struct RouteOpening;  // gpu/route_opening.h
struct OpenedRoute;   // gpu/route_opening.h

struct GpuRouteRow {
  std::string_view name;  // as in ALTORCH_ROUTE and in statistics
  // Where ALTORCH_ROUTE names one of those routes, and it is unsupported, this one is used.
  std::array<std::string_view, 2> fallback_for = {};
  // Opened with the group's first CUDA call, because the capture of a graph cannot wait for it.
  bool opens_at_once = false;
  bool forced = false;          // used where it is supported, even if ALTORCH_ROUTE names another
  bool in_rank_order = false;   // reduces in the order of the ranks, at every size
  bool sums_in_8_bits = false;  // between GPUs that NVLink links: altorch.ops.all_reduce_quantized
  bool guarded = false;         // does not mark results of aborted calls itself: poison_guard.h does

  // Why it is unsupported on this device of this process; in this group; for this operation of the
  // group. One clause, or nothing.
  std::optional<std::string> (*unsupported_on)(const GpuSource& gpus, int device);
  std::optional<std::string> (*unsupported_among)(const World& world);
  std::optional<std::string> (*unsupported_to)(const Operation& operation, const World& world);
  // Why it carries such calls only where ALTORCH_ROUTE names it, one clause, or null (the default).
  const char* (*named_only_reason)(const Operation& operation) = [](const Operation&) {
    return static_cast<const char*>(nullptr);
  };
  // Why the call cannot be captured into a CUDA graph, or nothing (the default). `asked`: the
  // protocol that ALTORCH_ROUTE names, or empty.
  std::optional<std::string> (*capture_unsupported_reason)(const Operation& operation, const World& world,
                                                           std::string_view asked) =
      [](const Operation&, const World&, std::string_view) { return std::optional<std::string>(); };
  // The largest block of an all_to_all, in bytes, that it carries beside NCCL; null: none.
  std::size_t (*pair_bytes)(int ranks) = nullptr;
  // Its protocols, as ALTORCH_ROUTE names them behind its own name; none: it has one way for all.
  std::vector<std::string_view> (*protocols)() = [] { return std::vector<std::string_view>(); };
  // What a rank does, as text; `asked`: the protocol that ALTORCH_ROUTE names, or empty.
  ExplainedProtocol (*explain)(const Operation& operation, const World& world, std::string_view asked);
  // Throws Error.
  OpenedRoute (*open)(RouteOpening& opening);

  bool is_fallback_for(std::string_view asked) const {
    return !asked.empty() && std::ranges::find(fallback_for, asked) != fallback_for.end();
  }
};

namespace gpu_rows {
extern const GpuRouteRow alone;  // groups of one rank
extern const GpuRouteRow nccl;   // one GPU per rank
extern const GpuRouteRow peer;   // memory of the ranks' own GPUs, which all of them map
extern const GpuRouteRow
    host_staged;  // pinned memory that a node's ranks share; the GPUs drive it themselves
extern const GpuRouteRow
    hierarchical;  // several nodes: peer or host_staged on each, nccl or host_relay between them
extern const GpuRouteRow
    host_relay;  // pinned memory of each rank, carried by MPI or Gloo: any ranks anywhere
}  // namespace gpu_rows

// All of them; table.h says which comes first for which calls.
std::span<const GpuRouteRow* const> gpu_route_rows();
// Its place among them.
std::size_t index_of(const GpuRouteRow& row);

}  // namespace altorch
