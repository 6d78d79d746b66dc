// SPDX-License-Identifier: BSD-3-Clause
// Runs the plans of all ranks of a group in one thread. A stage is carried out when all its members
// have come to it, all at once: what they give is read before anything is written. What does not
// fit together is a failure of the test.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <vector>

#include "collectives/hierarchical/plan.h"
#include "collectives/schedule.h"

namespace altorch::hierarchical {

using Ranks = std::vector<int>;
using Counts = std::vector<std::int64_t>;
using Values = std::vector<std::int64_t>;

struct VirtualRank {
  Values input, output, beside;
  std::vector<Stage> stages;
  std::size_t next = 0;

  bool is_done() const { return next == stages.size(); }
  const Stage& stage() const { return stages[next]; }
  bool owns(const void* address, std::int64_t count) const {
    const auto* const from = static_cast<const std::int64_t*>(address);
    return count == 0 || std::ranges::any_of(std::array{&input, &output, &beside}, [&](const Values* memory) {
             const std::less_equal<> before;
             return before(memory->data(), from) && before(from + count, memory->data() + memory->size());
           });
  }
  Values read(const void* from, std::int64_t begin, std::int64_t count) const {
    const auto* const address = static_cast<const std::int64_t*>(from) + begin;
    EXPECT_TRUE(owns(address, count)) << "it reads what is not its own";
    return owns(address, count) ? Values(address, address + count) : Values(static_cast<std::size_t>(count));
  }
  void write(void* to, const Values& values) const {
    EXPECT_TRUE(owns(to, static_cast<std::int64_t>(values.size()))) << "it writes to what is not its own";
    if (owns(to, static_cast<std::int64_t>(values.size())))
      std::copy(values.begin(), values.end(), static_cast<std::int64_t*>(to));
  }
  void move_own() {
    for (; !is_done() && stage().is_own(); ++next) {
      for (const Move& move : stage().moves) write(move.to, read(move.from, 0, move.count));
    }
  }
};

// One stage of all its members.
class VirtualStage {
 public:
  explicit VirtualStage(std::vector<VirtualRank*> members) : members_(std::move(members)) {}

  void run() {
    std::vector<Values> results;
    for (int i = 0; i < size(); ++i) {
      EXPECT_EQ(call(i).kind, call(0).kind);
      EXPECT_EQ(call(i).root, call(0).root);
      EXPECT_EQ(member(i).stage().own, i);
      results.push_back(result_of(i));
    }
    for (int i = 0; i < size(); ++i) {
      member(i).write(call(i).output, results[static_cast<std::size_t>(i)]);
      ++member(i).next;
    }
  }

 private:
  int size() const { return static_cast<int>(members_.size()); }
  VirtualRank& member(int i) const { return *members_[static_cast<std::size_t>(i)]; }
  const Call& call(int i) const { return member(i).stage().call; }

  Values vector_of(int i, const void* from) const { return member(i).read(from, 0, call(i).count); }
  Values input_block(int i, int block) const {
    const auto& counts = call(i).input_counts;
    return member(i).read(call(i).input, block_offset(counts, call(i).count, block),
                          block_count(counts, call(i).count, block));
  }
  template <typename Part>
  Values sum(Part part) const {
    Values all = part(0);
    for (int i = 1; i < size(); ++i) {
      const Values each = part(i);
      EXPECT_EQ(each.size(), all.size());
      for (std::size_t k = 0; k < std::min(all.size(), each.size()); ++k) all[k] += each[k];
    }
    return all;
  }
  template <typename Part>
  Values side_by_side(int i, Part part) const {
    Values all;
    for (int from = 0; from < size(); ++from) {
      const Values each = part(from);
      EXPECT_EQ(static_cast<std::int64_t>(each.size()),
                block_count(call(i).output_counts, call(i).count, from));
      all.insert(all.end(), each.begin(), each.end());
    }
    return all;
  }
  // What member `i` has in its output then.
  Values result_of(int i) const {
    const int root = call(i).root;
    switch (call(i).kind) {
      case OpKind::kAllReduce:
        return sum([&](int each) { return vector_of(each, call(each).output); });
      case OpKind::kReduce:
        return i != root ? Values() : sum([&](int each) { return vector_of(each, call(each).input); });
      case OpKind::kBroadcast:
        EXPECT_EQ(call(i).count, call(root).count);
        return vector_of(root, call(root).output);
      case OpKind::kGather:
        if (i != root) return {};
        [[fallthrough]];
      case OpKind::kAllGather:
        return side_by_side(i, [&](int each) { return vector_of(each, call(each).input); });
      case OpKind::kReduceScatter:
        return sum([&](int each) { return input_block(each, i); });
      case OpKind::kAllToAll:
        return side_by_side(i, [&](int each) { return input_block(each, i); });
      default:
        return {};
    }
  }

  const std::vector<VirtualRank*> members_;
};

// To the end of all plans.
inline void run_plans(const Ranks& nodes, std::vector<VirtualRank>& ranks) {
  const auto members_of = [&](int rank, const Stage& stage) {
    std::vector<VirtualRank*> members;
    const Layout layout(nodes, rank);
    for (const int each : stage.is_on_node() ? layout.neighbours() : stage.members)
      members.push_back(&ranks[static_cast<std::size_t>(each)]);
    return members;
  };
  for (bool moves = true; moves;) {
    moves = false;
    for (VirtualRank& each : ranks) each.move_own();
    for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
      if (ranks[rank].is_done()) continue;
      const auto members = members_of(static_cast<int>(rank), ranks[rank].stage());
      const int number = ranks[rank].stage().number;
      const auto is_there = [&](const VirtualRank* each) {
        return !each->is_done() && !each->stage().is_own() && each->stage().number == number;
      };
      if (!std::ranges::all_of(members, is_there)) continue;
      VirtualStage(members).run();
      moves = true;
    }
  }
  for (const VirtualRank& each : ranks) EXPECT_TRUE(each.is_done()) << "some never come to a stage of others";
}

}  // namespace altorch::hierarchical
