// SPDX-License-Identifier: BSD-3-Clause
#include "base/shape.h"
#include "collectives/printer.h"
#include "explain/parts.h"
#include "runtime/hierarchical_collectives.h"
#include "runtime/host_world.h"
#include "select/decide.h"
#include "select/table.h"
#include "transports/shm/collectives.h"

namespace altorch {
namespace {

// The one that was asked for, or nothing.
std::optional<Route> asked_for(const Question& question, const Operation& asked, const World& world) {
  if (question.algorithm.empty()) return std::nullopt;
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

// Native collectives that are not there, or that no rule names.
void add_native(Explanation& said, const Route& taken, const World& world) {
  for (const Row& row : rows_on(On::kHost)) {
    if (algorithm_of(row) || row.carrier == taken.name) continue;
    const bool known =
        std::ranges::any_of(said.others, [&](const auto& other) { return other.name == row.carrier; });
    if (known) continue;
    if (row.limits.only == Only::kNamed)
      said.others.push_back({std::string(row.carrier), calls_of(row)});
    else if (world.native_named(row.carrier) == kNoNative)
      said.others.push_back({std::string(row.carrier), row.needs});
  }
}

std::string how(const Route& taken) {
  if (taken.algorithm) return "messages between the ranks";
  if (taken.name == ShmCollectives::kName) return "memory that the ranks share";
  if (taken.name == HierarchicalCollectives::kName) return "memory on each node, messages between nodes";
  return "the transport's own collective";
}

}  // namespace

Explanation explain_on_host(const Question& question, const Operation& asked) {
  Explanation said;
  const World world = host_world(question.ranks, question.nodes);
  std::optional<Route> taken = asked_for(question, asked, world);
  if (!taken) {
    taken = decide({&asked, 1}, world, Rules(), [&](const Route& route) {
      const auto why = unsupported_reason(route, {&asked, 1}, world);
      if (why) said.others.push_back({std::string(route.name), *why});
      return !why;
    });
  }
  said.route = how(*taken);
  said.algorithm = taken->name;
  said.reason = taken->reason;
  add_rounds(said, *taken, asked, world, question);
  add_native(said, *taken, world);
  return said;
}

}  // namespace altorch
