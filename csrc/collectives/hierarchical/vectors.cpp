// SPDX-License-Identifier: BSD-3-Clause
// How vectors go over several nodes.
#include <algorithm>

#include "collectives/hierarchical/planner.h"

namespace altorch::hierarchical {
namespace {

void all_reduce_by_leaders(Planner& plan) {
  void* const vector = plan.vector(plan.call.output);
  const int leader = plan.own_leader();
  plan.on_node(plan.sub(OpKind::kReduce, leader, vector, vector));
  plan.among(plan.layout.leaders(), plan.sub(OpKind::kAllReduce, 0, nullptr, vector));
  plan.on_node(plan.sub(OpKind::kBroadcast, leader, nullptr, vector));
}

// Slices of a vector, one for each rail; ranks beyond the rails have none. Slices begin at
// multiples of 16 elements, so all have the same alignment.
struct Slices {
  explicit Slices(const Planner& plan) {
    const int rails = plan.layout.rails(), place = plan.layout.own_place();
    const std::int64_t each = ((plan.part.count + rails - 1) / rails + 15) / 16 * 16;
    const auto begin_of = [&](int of) { return std::min(plan.part.count, of * each); };
    for (int of = 0; of < static_cast<int>(plan.layout.neighbours().size()); ++of)
      counts.push_back(begin_of(of + 1) - begin_of(of));
    begin = begin_of(place);
    count = counts[static_cast<std::size_t>(place)];
    if (place < rails) members = plan.layout.rail(place);
  }
  std::vector<std::int64_t> counts;  // by place on the node
  std::int64_t begin, count;         // of this rank's
  std::vector<int> members;          // of this rank's rail, where it is on one
};

void all_reduce_by_rails(Planner& plan) {
  const Slices slices(plan);
  void* const vector = plan.vector(plan.call.output);
  void* const own = at(vector, slices.begin, plan.call.dtype);
  plan.give(plan.on_node(plan.sub(OpKind::kReduceScatter, 0, vector, own)), slices.counts, {});
  if (Stage* rail = plan.among(slices.members, plan.sub(OpKind::kAllReduce, 0, nullptr, own)))
    rail->call.count = slices.count;
  plan.give(plan.on_node(plan.sub(OpKind::kAllGather, 0, own, vector)), {}, slices.counts);
}

void reduce_by_rails(Planner& plan) {
  const Layout& layout = plan.layout;
  const Slices slices(plan);
  const int root = plan.call.root;
  void* const output = plan.vector(plan.call.output);
  void* const own = plan.reserve(2 * slices.count);
  void* const sum = at(layout.rank() == root ? output : own,
                       layout.rank() == root ? slices.begin : slices.count, plan.call.dtype);
  plan.give(plan.on_node(plan.sub(OpKind::kReduceScatter, 0, plan.vector(plan.call.input), own)),
            slices.counts, {});
  if (Stage* rail = plan.among(slices.members, plan.sub(OpKind::kReduce, layout.node_of(root), own, sum)))
    rail->call.count = slices.count;
  if (layout.own_node() == layout.node_of(root))
    plan.give(plan.on_node(plan.sub(OpKind::kGather, layout.place_of(root), sum, output)), {}, slices.counts);
}

void reduce_by_leaders(Planner& plan) {
  const Layout& layout = plan.layout;
  const int root = plan.call.root, leader = plan.own_leader(root);
  const void* const input = plan.vector(plan.call.input);
  void* const output = plan.vector(plan.call.output);
  void* const beside = plan.reserve(plan.part.count);
  void* const sum = layout.rank() == root ? output : beside;
  plan.on_node(plan.sub(OpKind::kReduce, leader, input, layout.own_place() == leader ? sum : beside));
  plan.among(layout.leaders(root),
             plan.sub(OpKind::kReduce, layout.node_of(root), layout.is_alone() ? input : sum, output));
}

bool takes_rails(const Planner& plan) {
  return vector_takes_rails(plan.part.count, plan.call.dtype, plan.layout);
}

void broadcast_by_leaders(Planner& plan) {
  const Layout& layout = plan.layout;
  const int root = plan.call.root;
  void* const vector = plan.vector(plan.call.output);
  plan.among(layout.leaders(root), plan.sub(OpKind::kBroadcast, layout.node_of(root), nullptr, vector));
  plan.on_node(plan.sub(OpKind::kBroadcast, plan.own_leader(root), nullptr, vector));
}

// The root's node gets the vector first. Each rail carries one slice to the other nodes, which
// gather the slices. No stage writes to the root's vector: it may be read-only.
void broadcast_by_rails(Planner& plan) {
  const Layout& layout = plan.layout;
  const Slices slices(plan);
  const int root = plan.call.root, source = layout.node_of(root);
  void* const vector = plan.vector(plan.call.output);
  void* const own = at(vector, slices.begin, plan.call.dtype);
  const bool is_source = layout.own_node() == source;
  if (is_source)
    plan.on_node(plan.sub(OpKind::kBroadcast, layout.place_of(root), nullptr, vector));
  else
    plan.skip();
  if (Stage* rail = plan.among(slices.members, plan.sub(OpKind::kBroadcast, source, nullptr, own)))
    rail->call.count = slices.count;
  if (!is_source) plan.give(plan.on_node(plan.sub(OpKind::kAllGather, 0, own, vector)), {}, slices.counts);
}

}  // namespace

bool vector_takes_rails(std::int64_t count, DType dtype, const Layout& layout) {
  return layout.rails() > 1 && count * static_cast<std::int64_t>(size_of(dtype)) >= kRails;
}

void barrier(Planner& plan) {
  const Call nothing = plan.sub(OpKind::kBarrier, 0, nullptr, nullptr);
  plan.on_node(nothing);
  plan.among(plan.layout.leaders(), nothing);
  plan.on_node(nothing);
}

void all_reduce(Planner& plan) {
  takes_rails(plan) ? all_reduce_by_rails(plan) : all_reduce_by_leaders(plan);
}

void reduce(Planner& plan) { takes_rails(plan) ? reduce_by_rails(plan) : reduce_by_leaders(plan); }

void broadcast(Planner& plan) { takes_rails(plan) ? broadcast_by_rails(plan) : broadcast_by_leaders(plan); }

}  // namespace altorch::hierarchical
