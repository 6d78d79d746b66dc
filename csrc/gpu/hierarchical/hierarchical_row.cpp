// SPDX-License-Identifier: BSD-3-Clause
// Several nodes, as a route that a group may take.
#include "gpu/hierarchical/hierarchical.h"
#include "gpu/route_opening.h"
#include "rendezvous/store_allgather.h"
#include "rendezvous/store_view.h"

namespace altorch {
namespace {

using hierarchical::Layout;

// What the ranks of one node exchange by: its World. Null: nothing.
const GpuRouteRow* row_on(const World& node) {
  for (const GpuRouteRow* row : {&gpu_rows::peer, &gpu_rows::host_staged})
    if (!node.missing[index_of(*row)]) return row;
  return nullptr;
}

// By one route along all rails.
const GpuRouteRow& row_between(const World& world) {
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
    if (node.ranks > 1 && !row_on(node)) return node.missing[index_of(gpu_rows::host_staged)];
  }
  return std::nullopt;
}

std::optional<std::string> capture_unsupported_reason(const Operation&, const World& world,
                                                      std::string_view) {
  if (&row_between(world) != &gpu_rows::nccl) return "the host takes part in it, between the nodes";
  for (const World& node : world.nodes) {
    if (node.ranks > 1 && row_on(node) != &gpu_rows::peer)
      return "host_staged carries it on a node, and its flags differ from replay to replay";
  }
  return std::nullopt;
}

ExplainedProtocol explain(const Operation& asked, const World& world, std::string_view) {
  const World& first = world.nodes.front();
  return {.steps = hierarchical::describe(asked, Layout(world.node_of_rank, /*rank=*/0)) + "on the node by " +
                   std::string(first.ranks > 1 ? row_on(first)->name : "nothing: rank 0 is alone there") +
                   ", between nodes by " + std::string(row_between(world).name) + "\n"};
}

// A route of some of the ranks.
class Part {
 public:
  Part(RouteOpening& whole, const std::vector<int>& ranks, const World& world)
      : whole_(whole), ranks_(ranks), world_(world) {
    // Not what is the whole group's: NCCL's communicator.
    options_.make_carrier = whole.options.make_carrier;
    options_.nccl = whole.options.nccl;
    options_.marks_results = whole.options.marks_results;
    options_.gpus = whole.options.gpus;
  }
  OpenedRoute open(const GpuRouteRow& row) {
    PrefixView store(whole_.store,
                     "hierarchical/" + std::to_string(ranks_.front()) + "/" + std::string(row.name) + "/");
    RouteOpening opening{whole_.communicator, ranks_, store,        whole_.first, whole_.device,
                         whole_.timeout,      world_, whole_.rules, options_,     whole_.has_kernels};
    return row.open(opening);
  }

 private:
  RouteOpening& whole_;
  const std::vector<int>& ranks_;
  const World& world_;
  GpuRouteOptions options_;
};

OpenedRoute open_on_node(RouteOpening& whole, const Layout& layout) {
  if (layout.is_alone()) return {};
  const World& node = whole.world.nodes[static_cast<std::size_t>(layout.own_node())];
  Part part(whole, layout.neighbours(), node);
  OpenedRoute opened;
  for (const GpuRouteRow* row : {&gpu_rows::peer, &gpu_rows::host_staged}) {
    if (!node.missing[index_of(*row)]) opened = part.open(*row);
    if (opened.route) break;
  }
  return opened;
}

std::unique_ptr<GpuRoute> open_rail(RouteOpening& whole, const Layout& layout) {
  const int place = layout.own_place();
  if (place >= layout.rails()) return nullptr;
  const std::vector<int> ranks = layout.rail(place);
  Part part(whole, ranks, whole.world.rails[static_cast<std::size_t>(place)]);
  return part.open(row_between(whole.world)).route;
}

OpenedRoute open(RouteOpening& opening) {
  const Layout layout(opening.world.node_of_rank, opening.rank());
  OpenedRoute on_node = open_on_node(opening, layout);
  std::unique_ptr<HierarchicalRoute> made;
  try {
    if (on_node.route || layout.is_alone()) {
      const bool shared = !opening.world.own_gpus();
      const auto& options = opening.options;
      made = std::make_unique<HierarchicalRoute>(
          options.gpus.open(opening.device, shared), layout, std::move(on_node.route),
          options.marks_results ? std::make_unique<PoisonGuard>(options.gpus.open(opening.device, shared))
                                : nullptr);
    }
  } catch (const Error& error) {
    if (ends_a_wait(error.kind())) throw;
    on_node.unsupported_reason = error.what();
  }
  if (auto why = first_unsupported_reason(opening.store, "hierarchical", opening.rank(), opening.size(),
                                          opening.timeout, "to share memory on its node",
                                          on_node.unsupported_reason))
    return {nullptr, *why};
  made->take_rail(open_rail(opening, layout));
  return {std::move(made), ""};
}

}  // namespace

extern const GpuRouteRow gpu_rows::hierarchical = {
    .name = HierarchicalRoute::kName,
    .unsupported_on = unsupported_on,
    .unsupported_among = unsupported_among,
    .unsupported_to = HierarchicalRoute::unsupported_reason,
    .capture_unsupported_reason = capture_unsupported_reason,
    .explain = explain,
    .open = open,
};

}  // namespace altorch
