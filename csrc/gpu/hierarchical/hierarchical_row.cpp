// SPDX-License-Identifier: BSD-3-Clause
// Several nodes, as a route that a group may take.
#include "base/env.h"
#include "base/shape.h"
#include "gpu/hierarchical/hierarchical.h"
#include "gpu/nccl/nccl_comm.h"
#include "gpu/route_opening.h"
#include "rendezvous/store_view.h"
#include "runtime/watchdog_store.h"

namespace altorch {
namespace {

using hierarchical::Layout;

constexpr const GpuRouteRow* kOnNode[] = {&gpu_rows::peer, &gpu_rows::host_staged};  // best first

// The route among the ranks of one node, or null if none is supported. `node`: what these ranks
// know of each other.
const GpuRouteRow* route_on_node(const World& node) {
  for (const GpuRouteRow* row : kOnNode)
    if (!node.missing[index_of(*row)]) return row;
  return nullptr;
}

// The same along all rails. Not by NCCL where ranks share a GPU: its kernels, which wait for other
// ranks, would have to run beside each other.
const GpuRouteRow& route_between_nodes(const World& world) {
  if (!world.own_gpus()) return gpu_rows::host_relay;
  for (const World& rail : world.rails)
    if (rail.missing[index_of(gpu_rows::nccl)]) return gpu_rows::host_relay;
  return gpu_rows::nccl;
}

std::optional<std::string> unsupported_on(const GpuSource& gpus, int device) {
  if (auto found = gpus.unsupported_reason(device)) return found;
  return gpus.kernel_unsupported_reason();
}

std::optional<std::string> unsupported_among(const World& world) {
  if (world.nodes.empty()) return "it is for several nodes, with several ranks on one of them";
  for (const World& node : world.nodes) {
    if (node.ranks > 1 && !route_on_node(node)) return node.missing[index_of(gpu_rows::host_staged)];
  }
  return std::nullopt;
}

std::optional<std::string> unsupported_to(const Operation& operation, const World& world) {
  if (auto why = HierarchicalRoute::unsupported_reason(operation, world)) return why;
  if (&route_between_nodes(world) != &gpu_rows::nccl) return std::nullopt;
  return nccl::NcclComm::unsupported_reason(operation);
}

// On every other route a rank without splits may meet ranks with splits.
const char* named_only_reason(const Operation& operation) {
  return exchanges(operation.kind) ? "ALTORCH_ROUTE must name it, which says that no rank gives splits"
                                   : nullptr;
}

std::optional<std::string> capture_unsupported_reason(const Operation&, const World& world,
                                                      std::string_view) {
  if (&route_between_nodes(world) != &gpu_rows::nccl) return "the host takes part in it, between the nodes";
  return std::nullopt;
}

ExplainedProtocol explain(const Operation& asked, const World& world, std::string_view) {
  const World& first = world.nodes.front();
  return {.steps =
              hierarchical::describe(asked, Layout(world.node_of_rank, /*rank=*/0)) + "on the node by " +
              std::string(first.ranks > 1 ? route_on_node(first)->name : "nothing: rank 0 is alone there") +
              ", between nodes by " + std::string(route_between_nodes(world).name) + "\n"};
}

// Opens a route of some of the ranks. `on_relay_failure`: see GpuRouteOptions.
OpenedRoute open_part(RouteOpening& whole, const std::vector<int>& ranks, const World& world,
                      const GpuRouteRow& row, std::function<void(const std::string&)> on_relay_failure = {}) {
  GpuRouteOptions options;  // without what is the whole group's: its NCCL communicator
  options.make_carrier = whole.options.make_carrier;
  options.nccl = whole.options.nccl;
  options.marks_results = whole.options.marks_results;
  options.gpus = whole.options.gpus;
  options.on_relay_failure = std::move(on_relay_failure);
  const std::string own = "hierarchical/" + std::to_string(ranks.front()) + "/" + std::string(row.name) + "/";
  PrefixView store(whole.store, own);
  RouteOpening opening{whole.communicator, ranks,         store, whole.prefix + own, whole.first,
                       whole.device,       whole.timeout, world, whole.rules,        options,
                       whole.has_kernels};
  return row.open(opening);
}

OpenedRoute open_on_node(RouteOpening& whole, const Layout& layout) {
  if (layout.is_alone()) return {};
  const World& node = whole.world.nodes[static_cast<std::size_t>(layout.own_node())];
  OpenedRoute opened;
  for (const GpuRouteRow* row : kOnNode) {
    if (!node.missing[index_of(*row)]) opened = open_part(whole, layout.neighbours(), node, *row);
    if (opened.route) break;
  }
  return opened;
}

// What fails along the rail is known on the node before any stream goes on with poison.
std::unique_ptr<GpuRoute> open_rail(RouteOpening& whole, const Layout& layout,
                                    const std::weak_ptr<GpuRoute>& on_node) {
  const int place = layout.own_place();
  if (place >= layout.rails()) return nullptr;
  const World& rail = whole.world.rails[static_cast<std::size_t>(place)];
  const auto abort_node = [on_node](const std::string& why) {
    if (const auto route = on_node.lock()) route->abort(why);
  };
  return open_part(whole, layout.rail(place), rail, route_between_nodes(whole.world), abort_node).route;
}

// Runs `act`. Returns why it failed, or an empty string. Rethrows an error that ended a wait for
// other ranks.
template <typename Act>
std::string failure_of(Act&& act) {
  try {
    act();
  } catch (const Error& error) {
    if (ends_a_wait(error.kind())) throw;
    return error.what();
  }
  return "";
}

// Waits until every rank has opened its rail; why one could not, or nothing. Without this wait a
// rank beyond the rails could enqueue a call that times out while NCCL still connects.
std::optional<std::string> wait_for_rails(const RouteOpening& opening, const std::string& own) {
  const auto patience = seconds_setting("ALTORCH_BOOTSTRAP_SECONDS");
  WatchdogStore checked(opening.communicator, opening.first, patience);
  PrefixView store(checked, opening.prefix);
  return first_unsupported_reason(store, "hierarchical/rails", opening.rank(), opening.size(),
                                  std::max(opening.timeout, patience), "to connect the nodes", own);
}

OpenedRoute open(RouteOpening& opening) {
  const Layout layout(opening.world.node_of_rank, opening.rank());
  const bool shared = !opening.world.own_gpus();
  const GpuSource& gpus = opening.options.gpus;
  HierarchicalRoute::Parts parts;
  std::unique_ptr<HierarchicalRoute> made;
  std::string own = failure_of([&] {
    OpenedRoute on_node = open_on_node(opening, layout);
    if (!on_node.route && !layout.is_alone())
      throw Error(ErrorKind::kUnsupported,
                  "the ranks of the node share no memory: " + on_node.unsupported_reason);
    parts.on_node = std::move(on_node.route);
    made = std::make_unique<HierarchicalRoute>(gpus.open(opening.device, shared), layout);
    if (opening.options.marks_results)
      parts.guard = std::make_unique<PoisonGuard>(gpus.open(opening.device, shared));
  });
  if (auto why = opening.first_unsupported_reason("hierarchical/nodes", "to share memory on its node", own))
    return {nullptr, *why};
  own = failure_of([&] { parts.rail = open_rail(opening, layout, parts.on_node); });
  if (auto why = wait_for_rails(opening, own)) return {nullptr, *why};
  constexpr char kCanBeCaptured[] = "";
  const bool by_peer = !parts.on_node || parts.on_node->name() == gpu_rows::peer.name;
  const auto unsupported_reason = opening.first_unsupported_reason(
      "hierarchical/graphs", "to agree whether graphs can hold it", by_peer ? kCanBeCaptured : "no peer");
  made->take(std::move(parts), /*can_be_captured=*/!unsupported_reason);
  return {std::move(made), ""};
}

}  // namespace

extern const GpuRouteRow gpu_rows::hierarchical = {
    .name = HierarchicalRoute::kName,
    .unsupported_on = unsupported_on,
    .unsupported_among = unsupported_among,
    .unsupported_to = unsupported_to,
    .named_only_reason = named_only_reason,
    .capture_unsupported_reason = capture_unsupported_reason,
    .explain = explain,
    .open = open,
};

}  // namespace altorch
