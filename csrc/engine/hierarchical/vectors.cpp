// How vectors go over several nodes.
#include <algorithm>

#include "engine/hierarchical/planner.h"

namespace altorch::hierarchical {
namespace {

int own_leader(const Layout& layout, int root) {
  return layout.place_of(layout.leader_of(layout.own_node(), root));
}

void all_reduce_by_leaders(Planner& plan) {
  void* const vector = plan.vector(plan.call.output);
  plan.on_node(plan.sub(OpKind::kReduce, 0, vector, vector));
  plan.among(plan.layout.leaders(), plan.sub(OpKind::kAllReduce, 0, nullptr, vector));
  plan.on_node(plan.sub(OpKind::kBroadcast, 0, nullptr, vector));
}

// Ranks beyond the rails have no slice.
void all_reduce_by_rails(Planner& plan) {
  const Layout& layout = plan.layout;
  void* const vector = plan.vector(plan.call.output);
  const std::int64_t each = ((plan.part.count + layout.rails() - 1) / layout.rails() + 15) / 16 * 16;
  const auto begin = [&](int place) { return std::min(plan.part.count, place * each); };
  std::vector<std::int64_t> slices;
  for (int place = 0; place < static_cast<int>(layout.neighbours().size()); ++place)
    slices.push_back(begin(place + 1) - begin(place));
  const int place = layout.own_place();
  void* const own = at(vector, begin(place), plan.call.dtype);
  plan.give(plan.on_node(plan.sub(OpKind::kReduceScatter, 0, vector, own)), slices, {});
  Stage* const rail = plan.among(place < layout.rails() ? layout.rail(place) : std::vector<int>(),
                                 plan.sub(OpKind::kAllReduce, 0, nullptr, own));
  if (rail) rail->call.count = slices[static_cast<std::size_t>(place)];
  plan.give(plan.on_node(plan.sub(OpKind::kAllGather, 0, own, vector)), {}, slices);
}

}  // namespace

void barrier(Planner& plan) {
  const Call nothing = plan.sub(OpKind::kBarrier, 0, nullptr, nullptr);
  plan.on_node(nothing);
  plan.among(plan.layout.leaders(), nothing);
  plan.on_node(nothing);
}

void all_reduce(Planner& plan) {
  const std::int64_t bytes = plan.part.count * static_cast<std::int64_t>(size_of(plan.call.dtype));
  plan.layout.rails() > 1 && bytes >= kRails ? all_reduce_by_rails(plan) : all_reduce_by_leaders(plan);
}

void reduce(Planner& plan) {
  const Layout& layout = plan.layout;
  const int root = plan.call.root, leader = own_leader(layout, root);
  const void* const input = plan.vector(plan.call.input);
  void* const output = plan.vector(plan.call.output);
  void* const beside = plan.reserve(plan.part.count);
  void* const sum = layout.rank() == root ? output : beside;
  plan.on_node(plan.sub(OpKind::kReduce, leader, input, layout.own_place() == leader ? sum : beside));
  plan.among(layout.leaders(root),
             plan.sub(OpKind::kReduce, layout.node_of(root), layout.is_alone() ? input : sum, output));
}

void broadcast(Planner& plan) {
  const Layout& layout = plan.layout;
  const int root = plan.call.root;
  void* const vector = plan.vector(plan.call.output);
  plan.among(layout.leaders(root), plan.sub(OpKind::kBroadcast, layout.node_of(root), nullptr, vector));
  plan.on_node(plan.sub(OpKind::kBroadcast, own_leader(layout, root), nullptr, vector));
}

}  // namespace altorch::hierarchical
