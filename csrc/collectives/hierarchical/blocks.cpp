// SPDX-License-Identifier: BSD-3-Clause
// How blocks go over several nodes: those of one node, or of one rail, side by side.
#include <algorithm>
#include <numeric>

#include "base/block_counts.h"
#include "base/shape.h"
#include "collectives/hierarchical/planner.h"

namespace altorch::hierarchical {
namespace {

using Counts = std::vector<std::int64_t>;

// The blocks of a call that one buffer holds for all ranks, as far as they are in this part.
class Blocks {
 public:
  Blocks(const Planner& plan, std::span<const std::int64_t> counts) {
    std::int64_t offset = 0;
    for (int rank = 0; rank < plan.layout.size(); ++rank) {
      const std::int64_t whole = block_count(counts, plan.call.count, rank);
      const std::int64_t skipped = std::min(plan.part.begin, whole);
      begins_.push_back(offset + skipped);
      skipped_.push_back(skipped);
      counts_.push_back(std::min(plan.part.count, whole - skipped));
      offset += whole;
    }
  }
  std::int64_t begin(int rank) const { return begins_[static_cast<std::size_t>(rank)]; }
  // What comes before the part of its block.
  std::int64_t skipped(int rank) const { return skipped_[static_cast<std::size_t>(rank)]; }
  std::int64_t count(int rank) const { return counts_[static_cast<std::size_t>(rank)]; }
  std::int64_t of(const std::vector<int>& ranks) const {
    return std::accumulate(ranks.begin(), ranks.end(), std::int64_t{0},
                           [&](std::int64_t sum, int rank) { return sum + count(rank); });
  }
  std::int64_t all() const { return std::accumulate(counts_.begin(), counts_.end(), std::int64_t{0}); }

 private:
  Counts begins_, skipped_, counts_;
};

// Which ranks each rail serves. On each node a rail serves the rank that is on it, and ranks beyond
// the rails in turns.
class Rails {
 public:
  Rails(const Layout& layout, const Blocks& blocks)
      : neighbours_(static_cast<int>(layout.neighbours().size())),
        place_(layout.own_place()),
        rails_(layout.rails()),
        blocks_(blocks),
        layout_(layout) {
    for (int rail = 0; rail < neighbours_; ++rail) {
      of_rails.push_back(0);
      for (int node = 0; node < layout.nodes(); ++node) {
        const std::vector<int> ranks = served_by(rail, node);
        const std::int64_t served = blocks.of(ranks);
        order.insert(order.end(), ranks.begin(), ranks.end());
        of_rails.back() += served;
        if (rail == place_) of_nodes.push_back(served);
      }
    }
  }

  Counts of_rails;         // by place: what its rail serves on all nodes; beyond the rails nothing
  Counts of_nodes;         // what this rank's rail serves on each node
  std::vector<int> order;  // all ranks, rail by rail, and node by node
  std::int64_t of_own() const { return of_rails[static_cast<std::size_t>(place_)]; }
  std::int64_t served_here() const { return of_nodes[static_cast<std::size_t>(layout_.own_node())]; }
  std::int64_t before_here() const {
    return std::accumulate(of_nodes.begin(), of_nodes.begin() + layout_.own_node(), std::int64_t{0});
  }
  std::vector<int> members() const { return place_ < rails_ ? layout_.rail(place_) : std::vector<int>(); }
  // Whether this node has ranks beyond the rails. They exchange their blocks with the ranks that
  // serve them. By place, of_served() has the counts of the blocks that this rank serves, and
  // of_server() its own count at its server's place.
  bool hands_over() const { return neighbours_ > rails_; }
  Counts of_served() const {
    return by_place([&](int place) { return place % rails_ == place_ ? place : kNobody; });
  }
  Counts of_server() const {
    return by_place([&](int place) { return place == place_ % rails_ ? place_ : kNobody; });
  }

 private:
  static constexpr int kNobody = -1;

  std::vector<int> served_by(int rail, int node) const {
    std::vector<int> ranks;
    const auto& all = layout_.ranks_of(node);
    for (int place = rail; rail < rails_ && place < static_cast<int>(all.size()); place += rails_)
      ranks.push_back(all[static_cast<std::size_t>(place)]);
    return ranks;
  }
  // The block of the neighbour at `whose(place)`.
  template <typename Whose>
  Counts by_place(Whose whose) const {
    Counts counts;
    for (int place = 0; place < neighbours_; ++place) {
      const int owner = whose(place);
      counts.push_back(
          owner == kNobody ? 0 : blocks_.count(layout_.neighbours()[static_cast<std::size_t>(owner)]));
    }
    return counts;
  }

  const int neighbours_, place_, rails_;
  const Blocks& blocks_;
  const Layout& layout_;
};

// Moves between the places of all blocks in a buffer of the caller, and side by side in this order.
template <typename Make>
std::vector<Move> moves_of(const Blocks& blocks, const std::vector<int>& order, Make make) {
  std::vector<Move> moves;
  std::int64_t offset = 0;
  for (const int rank : order) {
    moves.push_back(make(blocks.begin(rank), offset));
    moves.back().count = blocks.count(rank);
    offset += blocks.count(rank);
  }
  return moves;
}

// To each leader, among the leaders, from each leader. Where the ranks of a node do not follow one
// another, the blocks lie beside the output, node by node, until all are there.
void all_gather_by_leaders(Planner& plan) {
  const Layout& layout = plan.layout;
  const DType dtype = plan.call.dtype;
  const Blocks blocks(plan, plan.call.output_counts);
  void* const all = layout.is_contiguous() ? plan.call.output : plan.reserve(blocks.all());
  const void* const input = at(plan.call.input, blocks.skipped(layout.rank()), dtype);
  Counts of_nodes, of_neighbours;
  std::vector<int> order;
  for (int node = 0; node < layout.nodes(); ++node) {
    const auto& ranks = layout.ranks_of(node);
    of_nodes.push_back(blocks.of(ranks));
    order.insert(order.end(), ranks.begin(), ranks.end());
  }
  for (const int rank : layout.neighbours()) of_neighbours.push_back(blocks.count(rank));
  const auto before = of_nodes.begin() + layout.own_node();
  void* const own = at(all, std::accumulate(of_nodes.begin(), before, std::int64_t{0}), dtype);
  plan.give(plan.on_node(plan.sub(OpKind::kGather, plan.own_leader(), input, own)), {}, of_neighbours);
  plan.give(
      plan.among(layout.leaders(), plan.sub(OpKind::kAllGather, 0, layout.is_alone() ? input : own, all)), {},
      of_nodes);
  if (Stage* last = plan.on_node(plan.sub(OpKind::kBroadcast, plan.own_leader(), nullptr, all)))
    last->call.count = blocks.all();
  if (layout.is_contiguous()) return;
  plan.move(moves_of(blocks, order, [&](std::int64_t begin, std::int64_t offset) {
    return Move{at(all, offset, dtype), at(plan.call.output, begin, dtype)};
  }));
}

// Each rank gives its block to the rank of its node that is on the serving rail. Then blocks are
// gathered along each rail, and after that among the ranks of each node.
void all_gather_by_rails(Planner& plan) {
  const Layout& layout = plan.layout;
  const DType dtype = plan.call.dtype;
  const Blocks blocks(plan, plan.call.output_counts);
  const Rails rails(layout, blocks);
  void* const all = plan.reserve(blocks.all() + rails.of_own());
  void* const of_rail = at(all, blocks.all(), dtype);
  void* const served = at(of_rail, rails.before_here(), dtype);
  const void* const input = at(plan.call.input, blocks.skipped(layout.rank()), dtype);
  if (rails.hands_over()) {
    plan.give(plan.on_node(plan.sub(OpKind::kAllToAll, 0, input, served)), rails.of_server(),
              rails.of_served());
  } else {
    plan.skip();
  }
  plan.give(plan.among(rails.members(),
                       plan.sub(OpKind::kAllGather, 0, rails.hands_over() ? served : input, of_rail)),
            {}, rails.of_nodes);
  plan.give(plan.on_node(plan.sub(OpKind::kAllGather, 0, of_rail, all)), {}, rails.of_rails);
  plan.move(moves_of(blocks, rails.order, [&](std::int64_t begin, std::int64_t offset) {
    return Move{at(all, offset, dtype), at(plan.call.output, begin, dtype)};
  }));
}

// Along each rail, then on each node, the blocks of one node after the other. That saves the moves.
void all_gather_by_nodes(Planner& plan) {
  const Layout& layout = plan.layout;
  const DType dtype = plan.call.dtype;
  const Blocks blocks(plan, plan.call.output_counts);
  const std::vector<int> members = layout.rail(layout.own_place());
  Counts of_rail;
  for (const int rank : members) of_rail.push_back(blocks.count(rank));
  void* const from_rail = plan.reserve(blocks.of(members));
  plan.give(plan.among(members, plan.sub(OpKind::kAllGather, 0, plan.call.input, from_rail)), {}, of_rail);
  std::int64_t offset = 0;
  for (int node = 0; node < layout.nodes(); ++node) {
    const auto& ranks = layout.ranks_of(node);
    Counts of_node;
    for (const int rank : ranks) of_node.push_back(blocks.count(rank));
    plan.give(plan.on_node(plan.sub(OpKind::kAllGather, 0, at(from_rail, offset, dtype),
                                    at(plan.call.output, blocks.begin(ranks.front()), dtype))),
              {}, of_node);
    offset += of_rail[static_cast<std::size_t>(node)];
  }
}

}  // namespace

bool all_gather_goes_by_nodes(const Call& call, const Layout& layout) {
  const std::int64_t block = longest_block(call) * static_cast<std::int64_t>(size_of(call.dtype));
  return layout.is_contiguous() && layout.is_even() && block * layout.rails() >= kByNodes &&
         block * layout.nodes() <= kAtOnce;
}

bool all_gather_takes_rails(const Call& call, const Layout& layout) {
  const std::int64_t bytes =
      longest_block(call) * layout.size() * static_cast<std::int64_t>(size_of(call.dtype));
  return layout.rails() > 1 && bytes >= kRails;
}

void all_gather(Planner& plan) {
  if (all_gather_goes_by_nodes(plan.call, plan.layout)) return all_gather_by_nodes(plan);
  all_gather_takes_rails(plan.call, plan.layout) ? all_gather_by_rails(plan) : all_gather_by_leaders(plan);
}

// On each node, the rank on a rail sums the blocks that the rail serves. Then the sums are reduced
// along each rail. At last a rank on a rail hands over the results of ranks beyond the rails.
void reduce_scatter(Planner& plan) {
  const Layout& layout = plan.layout;
  const DType dtype = plan.call.dtype;
  const Blocks blocks(plan, plan.call.input_counts);
  const Rails rails(layout, blocks);
  void* const memory = plan.reserve(blocks.all() + rails.of_own() + rails.served_here());
  void* const sum = at(memory, blocks.all(), dtype);
  void* const served = at(sum, rails.of_own(), dtype);
  void* const output = at(plan.call.output, blocks.skipped(layout.rank()), dtype);
  const void* const arranged =
      plan.side_by_side(moves_of(blocks, rails.order,
                                 [&](std::int64_t begin, std::int64_t offset) {
                                   return Move{at(plan.call.input, begin, dtype), at(memory, offset, dtype)};
                                 }),
                        memory);
  plan.give(plan.on_node(plan.sub(OpKind::kReduceScatter, 0, arranged, sum)), rails.of_rails, {});
  plan.give(
      plan.among(rails.members(), plan.sub(OpKind::kReduceScatter, 0, layout.is_alone() ? arranged : sum,
                                           rails.hands_over() ? served : output)),
      rails.of_nodes, {});
  if (rails.hands_over())
    plan.give(plan.on_node(plan.sub(OpKind::kAllToAll, 0, served, output)), rails.of_served(),
              rails.of_server());
}

}  // namespace altorch::hierarchical
