// How blocks go over several nodes: those of one node, or of one rail, side by side.
#include <algorithm>
#include <numeric>

#include "common/block_counts.h"
#include "engine/hierarchical/planner.h"

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

// The ranks of a node that a rail serves: the one that is on it, and those beyond the rails in turns.
std::vector<int> served_by(const Layout& layout, int rail, int node) {
  std::vector<int> ranks;
  const auto& all = layout.ranks_of(node);
  for (auto place = static_cast<std::size_t>(rail); place < all.size();
       place += static_cast<std::size_t>(layout.rails()))
    ranks.push_back(all[place]);
  return ranks;
}

}  // namespace

// To each leader, among the leaders, from each leader. Where the ranks of a node do not follow one another, the blocks
// lie beside the output, node by node, until all are there.
void all_gather(Planner& plan) {
  const Layout& layout = plan.layout;
  const DType dtype = plan.call.dtype;
  const Blocks blocks(plan, plan.call.output_counts);
  void* const all = layout.is_contiguous() ? plan.call.output : plan.reserve(blocks.all());
  const void* const input = at(plan.call.input, blocks.skipped(layout.rank()), dtype);
  Counts of_nodes, of_neighbours;
  for (int node = 0; node < layout.nodes(); ++node) of_nodes.push_back(blocks.of(layout.ranks_of(node)));
  for (const int rank : layout.neighbours()) of_neighbours.push_back(blocks.count(rank));
  const auto before = of_nodes.begin() + layout.own_node();
  void* const own = at(all, std::accumulate(of_nodes.begin(), before, std::int64_t{0}), dtype);
  plan.give(plan.on_node(plan.sub(OpKind::kGather, 0, input, own)), {}, of_neighbours);
  plan.give(
      plan.among(layout.leaders(), plan.sub(OpKind::kAllGather, 0, layout.is_alone() ? input : own, all)), {},
      of_nodes);
  if (Stage* last = plan.on_node(plan.sub(OpKind::kBroadcast, 0, nullptr, all)))
    last->call.count = blocks.all();
  if (layout.is_contiguous()) return;
  std::vector<Move> moves;
  std::int64_t offset = 0;
  for (int node = 0; node < layout.nodes(); ++node) {
    for (const int rank : layout.ranks_of(node)) {
      moves.push_back(
          {at(all, offset, dtype), at(plan.call.output, blocks.begin(rank), dtype), blocks.count(rank)});
      offset += blocks.count(rank);
    }
  }
  plan.move(std::move(moves));
}

// On each node the ranks on rails sum what their rail serves, then reduce it along the rail, and hand on what is not
// for them.
void reduce_scatter(Planner& plan) {
  const Layout& layout = plan.layout;
  const DType dtype = plan.call.dtype;
  const Blocks blocks(plan, plan.call.input_counts);
  const int place = layout.own_place(), rails = layout.rails();
  const auto neighbours = static_cast<int>(layout.neighbours().size());
  const bool is_on_rail = place < rails;
  Counts of_rails(static_cast<std::size_t>(neighbours)), of_nodes(static_cast<std::size_t>(layout.nodes()));
  for (int rail = 0; rail < rails; ++rail) {
    for (int node = 0; node < layout.nodes(); ++node) {
      const std::int64_t served = blocks.of(served_by(layout, rail, node));
      of_rails[static_cast<std::size_t>(rail)] += served;
      if (rail == place) of_nodes[static_cast<std::size_t>(node)] = served;
    }
  }
  const std::int64_t sums = of_rails[static_cast<std::size_t>(place)];
  const std::int64_t served_here = of_nodes[static_cast<std::size_t>(layout.own_node())];
  void* const memory = plan.reserve(blocks.all() + sums + served_here);
  void* const sum = at(memory, blocks.all(), dtype);
  void* const beside = at(sum, sums, dtype);
  void* const output = at(plan.call.output, blocks.skipped(layout.rank()), dtype);

  // The blocks of each rail side by side.
  std::vector<Move> moves;
  std::int64_t offset = 0;
  for (int rail = 0; rail < rails; ++rail) {
    for (int node = 0; node < layout.nodes(); ++node) {
      for (const int rank : served_by(layout, rail, node)) {
        moves.push_back(
            {at(plan.call.input, blocks.begin(rank), dtype), at(memory, offset, dtype), blocks.count(rank)});
        offset += blocks.count(rank);
      }
    }
  }
  const void* const arranged = plan.side_by_side(std::move(moves), memory);
  plan.give(plan.on_node(plan.sub(OpKind::kReduceScatter, 0, arranged, sum)), of_rails, {});
  const bool hands_on = neighbours > rails;
  plan.give(plan.among(is_on_rail ? layout.rail(place) : std::vector<int>(),
                       plan.sub(OpKind::kReduceScatter, 0, layout.is_alone() ? arranged : sum,
                                hands_on ? beside : output)),
            of_nodes, {});
  if (!hands_on) return;
  Counts given(static_cast<std::size_t>(neighbours)), taken(static_cast<std::size_t>(neighbours));
  for (int each = 0; each < neighbours; ++each) {
    const std::int64_t block = blocks.count(layout.neighbours()[static_cast<std::size_t>(each)]);
    if (each % rails == place) given[static_cast<std::size_t>(each)] = block;
    if (each == place) taken[static_cast<std::size_t>(each % rails)] = block;
  }
  plan.give(plan.on_node(plan.sub(OpKind::kAllToAll, 0, beside, output)), given, taken);
}

}  // namespace altorch::hierarchical
