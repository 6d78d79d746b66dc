// SPDX-License-Identifier: BSD-3-Clause
// Builds the stages of a plan.
#pragma once

#include "collectives/hierarchical/plan.h"

namespace altorch::hierarchical {

inline std::byte* at(void* base, std::int64_t elements, DType dtype) {
  if (!base) return nullptr;  // described, not run
  return static_cast<std::byte*>(base) + elements * static_cast<std::int64_t>(size_of(dtype));
}
inline const std::byte* at(const void* base, std::int64_t elements, DType dtype) {
  return at(const_cast<void*>(base), elements, dtype);
}

// Collects the stages of this rank. Every rank calls on_node(), among() and skip() in the same
// order, so that all ranks agree on the numbers of the stages.
class Planner {
 public:
  Planner(const Call& call, const Layout& layout, Part part, const Reserve& reserve)
      : call(call), layout(layout), part(part), reserve(reserve) {}

  const Call& call;
  const Layout& layout;
  const Part part;
  const Reserve& reserve;
  std::vector<Stage> stages;

  // A sub-call of the part's length.
  Call sub(OpKind kind, int root, const void* input, void* output) const {
    // The engine divides the sum to get the mean.
    const ReduceOp op = call.op == ReduceOp::kAvg ? ReduceOp::kSum : call.op;
    return {kind, call.dtype, op, root, input, output, part.count};
  }
  // Where the part of a vector begins.
  void* vector(void* base) const { return at(base, part.begin, call.dtype); }
  const void* vector(const void* base) const { return at(base, part.begin, call.dtype); }

  // The place of the leader of this node there.
  int own_leader(int root = -1) const { return layout.place_of(layout.leader_of(layout.own_node(), root)); }
  // Adds a stage among the ranks of this node. Null: this rank is alone on its node, and has
  // nothing to do there.
  Stage* on_node(const Call& sub_call);
  // Adds a stage among `members`. Null: this rank is not a member.
  Stage* among(std::vector<int> members, const Call& sub_call);
  // Counts a stage that only other nodes have.
  void skip() { ++number_; }
  // Adds a stage of local copies, in which no other rank takes part.
  void move(std::vector<Move> moves);
  // Adds `moves`, which bring blocks side by side at `to`, and returns `to`. If the blocks lie side
  // by side already, adds nothing and returns where they are.
  const void* side_by_side(std::vector<Move> moves, const void* to);
  // Sets the counts of a stage's blocks, by member. Null: does nothing.
  static void give(Stage* stage, std::vector<std::int64_t> input_counts,
                   std::vector<std::int64_t> output_counts);

 private:
  int number_ = 0;
};

// From so many bytes of a vector, or of all blocks, all rails use the network: that is worth two
// more waits within the node.
constexpr std::int64_t kRails = 64 << 10;
// From so many bytes of the blocks of a node, a call for each node costs less than moves.
constexpr std::int64_t kByNodes = 1 << 20;

// vectors.cpp
void barrier(Planner& plan);
void all_reduce(Planner& plan);
void reduce(Planner& plan);
void broadcast(Planner& plan);
// blocks.cpp
bool all_gather_goes_by_nodes(const Call& call, const Layout& layout);
bool all_gather_takes_rails(const Call& call, const Layout& layout);
void all_gather(Planner& plan);
void reduce_scatter(Planner& plan);
// exchange.cpp
bool all_to_all_goes_whole(const Call& call, const Layout& layout);
void all_to_all(Planner& plan);

}  // namespace altorch::hierarchical
