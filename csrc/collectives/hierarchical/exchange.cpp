// SPDX-License-Identifier: BSD-3-Clause
// An all_to_all of even blocks over nodes with equally many ranks. Only the GPU route uses it:
// has_plan() refuses it for host memory.
//
//   rank (node n, place i) ── on node n ──> (n, j) ── along rail j ──> (m, j)
//
// On each node, the rank at place j collects the blocks of its node for the ranks at place j. So a
// rail carries as many messages as there are nodes, each with the blocks of all ranks of a node.
#include "collectives/hierarchical/planner.h"

namespace altorch::hierarchical {
namespace {

// Copies between a buffer of the caller and blocks that lie side by side, ordered by node.
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

// One call on the node for each destination node: the results lie in the order that the rail sends.
void all_to_all(Planner& plan) {
  const Layout& layout = plan.layout;
  const DType dtype = plan.call.dtype;
  const std::int64_t of_node = plan.part.count * layout.rails(), all = of_node * layout.nodes();
  const bool moves = !layout.is_contiguous() || plan.part.count != plan.call.count;
  void* const collected = plan.reserve(moves ? 2 * all : all);
  // Holds this rank's blocks by node; after the exchange, the blocks for this rank.
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
