// SPDX-License-Identifier: BSD-3-Clause
// How an all_to_all of even blocks goes over several nodes that have as many ranks each.
//
//   rank (node n, place i) ── on node n ──> (n, j) ── along rail j ──> (m, j)
//
// On each node, the rank at place j collects the blocks of its node for the ranks at place j. So a
// rail carries as many messages as there are nodes, each with the blocks of all ranks of a node.
#include "collectives/hierarchical/planner.h"

namespace altorch::hierarchical {
namespace {

// Moves between where the blocks lie in a buffer of the caller, and side by side, node by node.
template <typename Make>
std::vector<Move> moves_by_node(const Planner& plan, Make make) {
  std::vector<Move> moves;
  std::int64_t offset = 0;
  for (int node = 0; node < plan.layout.nodes(); ++node) {
    for (const int rank : plan.layout.ranks_of(node)) {
      moves.push_back(make(rank * plan.call.count + plan.part.begin, offset));
      moves.back().count = plan.part.count;
      offset += plan.part.count;
    }
  }
  return moves;
}

}  // namespace

bool all_to_all_goes_whole(const Call& call, const Layout& layout) {
  return layout.is_contiguous() &&
         call.count * layout.size() * static_cast<std::int64_t>(size_of(call.dtype)) <= kAtOnce;
}

// A call on the node for each node, so that its blocks lie side by side without moves.
void all_to_all(Planner& plan) {
  const Layout& layout = plan.layout;
  const DType dtype = plan.call.dtype;
  const std::int64_t of_node = plan.part.count * layout.rails(), all = of_node * layout.nodes();
  const bool moves = !layout.is_contiguous() || plan.part.count != plan.call.count;
  void* const collected = plan.reserve(moves ? 2 * all : all);
  // First the blocks of this rank, then those for it.
  void* const arranged = moves ? at(collected, all, dtype) : plan.call.output;
  const void* const input = plan.side_by_side(
      moves_by_node(plan,
                    [&](std::int64_t begin, std::int64_t offset) {
                      return Move{at(plan.call.input, begin, dtype), at(arranged, offset, dtype)};
                    }),
      arranged);
  for (int node = 0; node < layout.nodes(); ++node)
    plan.on_node(plan.sub(OpKind::kAllToAll, 0, at(input, node * of_node, dtype),
                          at(collected, node * of_node, dtype)));
  if (Stage* rail =
          plan.among(layout.rail(layout.own_place()), plan.sub(OpKind::kAllToAll, 0, collected, arranged)))
    rail->call.count = of_node;
  if (!moves) return;
  plan.move(moves_by_node(plan, [&](std::int64_t begin, std::int64_t offset) {
    return Move{at(arranged, offset, dtype), at(plan.call.output, begin, dtype)};
  }));
}

}  // namespace altorch::hierarchical
