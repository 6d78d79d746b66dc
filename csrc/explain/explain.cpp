// SPDX-License-Identifier: BSD-3-Clause
#include "explain/explain.h"

#include <algorithm>

#include "base/error.h"
#include "base/shape.h"
#include "base/size_text.h"
#include "collectives/printer.h"
#include "gpu/host_staged/pinned_bytes.h"
#include "runtime/hierarchical_collectives.h"
#include "runtime/host_world.h"
#include "select/decide.h"
#include "select/defaults.h"
#include "select/gpu_defaults.h"
#include "select/table.h"
#include "transports/shm/collectives.h"

namespace altorch {
namespace {

[[noreturn]] void refuse(const std::string& why) { throw Error(ErrorKind::kInvalidArgument, why); }

template <typename Enum>
Enum named(const std::string& name, int count, const char* what) {
  for (int each = 0; each < count; ++each) {
    if (name == name_of(static_cast<Enum>(each))) return static_cast<Enum>(each);
  }
  refuse("'" + name + "' is no " + what);
}

// Ranks in a row on each node, with a GPU for each or one for all of the node.
World of_gpus(const Question& question) {
  std::vector<GpuPeerInfo> peers(static_cast<std::size_t>(question.ranks));
  for (int rank = 0; rank < question.ranks; ++rank) {
    GpuPeerInfo& peer = peers[static_cast<std::size_t>(rank)];
    peer.node = std::to_string(static_cast<std::int64_t>(rank) * question.nodes / question.ranks);
    peer.gpu = peer.node + (question.share_gpus ? "" : "/" + std::to_string(rank));
  }
  for (GpuPeerInfo& peer : peers) {
    for (const GpuPeerInfo& other : peers) {
      if (question.linked && &other != &peer && other.node == peer.node) peer.links.push_back(other.gpu);
    }
  }
  return World::of(peers);
}

// The one that was asked for, or nothing.
std::optional<Route> asked_for(const Question& question, const Operation& asked, const World& world) {
  if (question.algorithm.empty() || question.on_gpus) return std::nullopt;
  Route route{
      .name = question.algorithm, .reason = "asked for", .native = world.native_named(question.algorithm)};
  if (route.native == kNoNative) {
    route.algorithm = find_algorithm(asked.kind, question.algorithm);
    if (!route.algorithm) {
      refuse("'" + question.algorithm + "' is no algorithm of " + question.operation +
             "; `altorch algorithms` lists them");
    }
    route.name = route.algorithm->name;
  }
  if (const auto why = unsupported_reason(route, {&asked, 1}, world))
    refuse(question.algorithm + " cannot carry " + question.operation + " of " + question.dtype + " among " +
           std::to_string(question.ranks) + " ranks: " + *why + "; `altorch algorithms` lists what can");
  return route;
}

void add_protocol(Explanation& said, const Route& taken, const ExplainedProtocol& found,
                  std::string_view asked) {
  said.rounds = found.steps;
  said.protocol = found.name;
  for (const auto& [name, why] : found.others)
    said.others.push_back(
        {std::string(taken.name) + "/" + name, name == asked ? "ALTORCH_ROUTE names it, but " + why : why});
}

void add_rounds(Explanation& said, const Route& route, const Operation& asked, const World& world,
                const Question& question) {
  const CostModel model;
  const auto bytes = static_cast<double>(question.bytes);
  if (is_staged(route, asked, world)) said.reason += "; half types are added in float32, piece by piece";
  if (route.algorithm) {
    Problem problem{.rank = question.rank, .size = question.ranks, .count = asked.count};
    if (route.algorithm->pipelined) problem.segment_count = segment_elements(asked.dtype);
    said.rounds = describe(*route.algorithm, problem);
    said.seconds = route.algorithm->cost(question.ranks, bytes, model);
  } else if (route.name == ShmCollectives::kName) {
    add_protocol(said, route, ShmCollectives::describe(asked, question.ranks, route.protocol),
                 route.protocol);
  } else if (route.name == HierarchicalCollectives::kName) {
    const auto layout = layout_on_nodes(question.ranks, question.nodes, question.rank);
    said.rounds = hierarchical::describe(asked, layout);
    said.seconds = HierarchicalCollectives::cost(asked, layout, model);
  } else {
    said.rounds = "the MPI library's own collective, after the ranks compared what they call\n";
  }
  for (const Algorithm* each : algorithms()) {
    if (each->kind == asked.kind && each != route.algorithm)
      said.alternatives.push_back(
          {std::string(each->name), each->cost(question.ranks, bytes, model), default_for(*each)});
  }
}

constexpr const char* kLater = "the first that serves is taken";

// Why a route that could carry the call does not.
std::string why_later(const GpuRouteRow& row, const Operation& asked, const World& world) {
  std::int64_t most = 0;
  for (const GpuDefaultRow& early : gpu_default_rows()) {
    if (early.route != &row || !early.applies_to_group(asked, world)) continue;
    if (early.serves(asked, world)) return kLater;
    most = std::max(most, early.most_sent(world));
  }
  if (most == 0 || most == kUnlimited) return kLater;
  return "it comes first up to " + size_text(scatters(asked.kind) ? most / world.ranks : most);
}

void add_gpu_routes(Explanation& said, const std::optional<Route>& taken, const Operation& asked,
                    const World& world, const Rules& rules) {
  const std::string_view ruled = rules.gpu_route(asked, world.ranks);
  for (const GpuRouteRow* row : gpu_route_rows()) {
    if ((taken && taken->row == row) || row->forced) continue;  // the latter is no choice
    const bool allowed = ruled.empty() || ruled == row->name || ruled == row->fallback_for;
    const auto why = unsupported_reason({.name = row->name, .row = row}, {&asked, 1}, world);
    said.others.push_back(
        {std::string(row->name), why.value_or(ruled.empty() ? why_later(*row, asked, world)
                                              : allowed     ? kLater
                                                            : "ALTORCH_ROUTE says " + std::string(ruled))});
  }
}

}  // namespace

OpKind kind_named(const std::string& name) {
  return named<OpKind>(name, kRoutedKindCount, "operation; `altorch algorithms` lists them");
}
DType dtype_named(const std::string& name) {
  return named<DType>(name, kDTypeCount, "element type; try float32");
}
ReduceOp reduce_op_named(const std::string& name) {
  return named<ReduceOp>(name, kReduceOpCount, "reduction; try SUM");
}

Explanation explain(const Question& question) {
  Operation asked;
  asked.kind = kind_named(question.operation);
  asked.dtype = dtype_named(question.dtype);
  asked.count = question.bytes / static_cast<std::int64_t>(size_of(asked.dtype));
  asked.device = question.on_gpus ? 0 : kHostDevice;
  Explanation said;
  if (asked.is_message() && !question.on_gpus) {
    said.route = said.algorithm = "message";
    said.reason = "one message, posted at once by the calling thread";
    return said;
  }
  const World world = question.on_gpus ? of_gpus(question) : host_world(question.ranks, question.nodes);
  const Rules rules;
  std::optional<Route> taken = asked_for(question, asked, world);
  if (!taken) {
    taken = decide({&asked, 1}, world, rules, [&](const Route& route) {
      const auto why = unsupported_reason(route, {&asked, 1}, world);
      // What a rule of ALTORCH_ROUTE names, and cannot have.
      if (why && !route.row) said.others.push_back({std::string(route.name), *why});
      return !why &&
             (!route.in_pairs || LlExchanges::goes_in_pairs(asked, route.row->pair_bytes(world.ranks)));
    });
  }
  said.route = said.algorithm = taken ? taken->name : "none";
  if (taken) said.reason = taken->reason;
  if (question.on_gpus) {
    if (taken) {
      const std::string_view named = rules.gpu_protocol(asked, world.ranks, taken->name);
      add_protocol(said, *taken, taken->row->explain(asked, world, named), named);
    }
    add_gpu_routes(said, taken, asked, world, rules);
  } else {
    said.route = taken->algorithm                       ? "messages between the ranks"
                 : taken->name == ShmCollectives::kName ? "memory that the ranks share"
                 : taken->name == HierarchicalCollectives::kName
                     ? "memory on each node, messages between nodes"
                     : "the transport's own collective";
    add_rounds(said, *taken, asked, world, question);
  }
  return said;
}

}  // namespace altorch
