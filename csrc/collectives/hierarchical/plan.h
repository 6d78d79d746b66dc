// SPDX-License-Identifier: BSD-3-Clause
// A collective of a group that spans nodes, as sub-calls: on the node, through memory; and between
// nodes, as messages of some ranks.
//
//   small    on each node to its leader, among the leaders, from the leader to its node
//   large    the first ranks of each node, as many as every node has, take a slice of the vector
//            each, or the blocks of some ranks, with their node, then along their rail (the ranks
//            that have the same place on the other nodes): all of them use the network
//
// A pure function of what all ranks know alike. So an all_to_all has a plan only for even blocks,
// and only where all nodes have as many ranks.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "base/call.h"
#include "collectives/hierarchical/layout.h"

namespace altorch::hierarchical {

// Elements that go from one place of this rank's memory to another.
struct Move {
  const void* from;
  void* to;
  std::int64_t count = 0;
};

// One sub-call, of which this rank is a part.
struct Stage {
  int number = 0;  // the same on all ranks, which take part in different ones
  Call call = {};  // ranks and roots count among the members
  // Ranks of the group between which messages go; empty: this rank's node.
  std::vector<int> members = {};
  int own = 0;                                                      // its place among them
  std::vector<std::int64_t> input_counts = {}, output_counts = {};  // what the call's spans point to
  std::vector<Move> moves = {};                                     // where there are any: they are all

  bool is_own() const { return !moves.empty(); }
  bool is_on_node() const { return members.empty(); }
};

// What one plan carries: elements of the vector, or of every block as far as it has them.
struct Part {
  std::int64_t begin = 0, count = 0;
};
// Memory beside the rank's own buffers, for so many elements. A plan asks for it once, or not at
// all.
using Reserve = std::function<void*(std::int64_t elements)>;

// Whether such a call on host memory goes by stages. The functions below are for these calls, and
// for the all_to_all above.
bool has_plan(const Call& call, const Layout& layout);
// Whether a plan takes all rails for such a part of a vector. A broadcast then begins on the root's
// node; else among the leaders, of which one is the root.
bool vector_takes_rails(std::int64_t count, DType dtype, const Layout& layout);
// A plan, of one part, reserves at most three times the `bytes` of longest_part(), or this.
inline constexpr std::int64_t kAtOnce = 32 << 20;
// The most elements of a part that takes about `bytes` of memory: at least 1, and perhaps more than
// are left, so the caller takes the smaller. The same on all ranks where `bytes` is.
std::int64_t longest_part(const Call& call, const Layout& layout, std::int64_t bytes);
// This rank's stages for `part`, in the order to run; perhaps none. `part`: in elements, the same
// on all ranks. kAvg becomes kSum: the caller divides; `factor` and `norm` are the caller's, too.
// Stages point into the call's buffers and into what `reserve` gave, which the caller keeps until
// they have run. Move a Stage, do not copy it: its spans point into itself. Any thread; throws what
// `reserve` throws.
std::vector<Stage> plan_of(const Call& call, const Layout& layout, Part part, const Reserve& reserve);
// The stages of the whole call, which cannot be run.
std::vector<Stage> outline(const Call& call, const Layout& layout);
// For people.
std::string describe(const Call& call, const Layout& layout);

}  // namespace altorch::hierarchical
