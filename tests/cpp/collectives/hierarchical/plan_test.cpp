// SPDX-License-Identifier: BSD-3-Clause
#include "collectives/hierarchical/plan.h"

#include <gtest/gtest.h>

#include <numeric>
#include <random>

#include "base/shape.h"
#include "collectives/hierarchical/virtual_ranks.h"

namespace altorch::hierarchical {
namespace {

// Every way to put `size` ranks on nodes that are numbered in the order of their first ranks.
std::vector<Ranks> layouts(int size) {
  std::vector<Ranks> all = {{0}};
  for (int rank = 1; rank < size; ++rank) {
    std::vector<Ranks> longer;
    for (const Ranks& each : all) {
      for (int node = 0; node <= *std::ranges::max_element(each) + 1; ++node) {
        longer.push_back(each);
        longer.back().push_back(node);
      }
    }
    all = std::move(longer);
  }
  return all;
}

// A byte for each rank, so that a sum says what was added, and how often.
Values operand(int rank, std::int64_t count) {
  Values made(static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < made.size(); ++i)
    made[i] = static_cast<std::int64_t>(1 + i % 127) << (8 * rank);
  return made;
}
Values sum(int size, std::int64_t count) {
  Values all(static_cast<std::size_t>(count));
  for (int rank = 0; rank < size; ++rank) {
    const Values each = operand(rank, count);
    std::transform(all.begin(), all.end(), each.begin(), all.begin(), std::plus<>());
  }
  return all;
}

// A call of all ranks: what each has before, and has to have after.
struct Case {
  OpKind kind;
  Counts counts;  // of blocks; of a vector only the first
  int root = 0;

  int size() const { return static_cast<int>(counts.size()); }
  std::int64_t count(int rank) const { return counts[static_cast<std::size_t>(rank)]; }
  std::int64_t begin(int rank) const {
    return std::accumulate(counts.begin(), counts.begin() + rank, std::int64_t{0});
  }
  std::int64_t all() const { return begin(size()); }
  bool has_blocks() const { return altorch::has_blocks(kind); }

  Values input(int rank) const {
    const bool has_all = kind == OpKind::kReduceScatter || kind == OpKind::kAllToAll;
    return operand(rank, has_all ? all() : count(has_blocks() ? rank : 0));
  }
  Values output(int rank) const {
    if (kind == OpKind::kAllReduce || kind == OpKind::kBroadcast) return operand(rank, count(0));
    const bool has_all = kind == OpKind::kAllGather || kind == OpKind::kAllToAll;
    return Values(static_cast<std::size_t>(has_all ? all() : count(has_blocks() ? rank : 0)), -1);
  }
  Values expected(int rank) const {
    switch (kind) {
      case OpKind::kAllReduce:
        return sum(size(), count(0));
      case OpKind::kReduce:
        return rank == root ? sum(size(), count(0)) : output(rank);
      case OpKind::kBroadcast:
        return operand(root, count(0));
      case OpKind::kReduceScatter: {
        const Values sums = sum(size(), all());
        return {sums.begin() + begin(rank), sums.begin() + begin(rank) + count(rank)};
      }
      case OpKind::kAllGather: {
        Values blocks;
        for (int each = 0; each < size(); ++each) {
          const Values block = operand(each, count(each));
          blocks.insert(blocks.end(), block.begin(), block.end());
        }
        return blocks;
      }
      case OpKind::kAllToAll: {
        Values blocks;
        for (int each = 0; each < size(); ++each) {
          const Values sent = operand(each, all());
          blocks.insert(blocks.end(), sent.begin() + begin(rank), sent.begin() + begin(rank) + count(rank));
        }
        return blocks;
      }
      default:
        return output(rank);
    }
  }
  Call call(VirtualRank& own, int rank) const {
    Call made{kind,
              DType::kInt64,
              ReduceOp::kSum,
              root,
              own.input.data(),
              own.output.data(),
              count(has_blocks() ? rank : 0)};
    if (kind == OpKind::kAllGather) made.output_counts = counts;
    if (kind == OpKind::kReduceScatter) made.input_counts = counts;
    return made;
  }
};

// Another for each node.
Ranks leader_places(const Ranks& nodes) {
  const Layout layout(nodes, 0);
  Ranks places;
  for (int node = 0; node < layout.nodes(); ++node)
    places.push_back(node % static_cast<int>(layout.ranks_of(node).size()));
  return places;
}

// In parts of about `bytes`.
void expect_right(const Ranks& nodes, const Case& asked, std::int64_t bytes) {
  std::vector<VirtualRank> ranks(nodes.size());
  for (int rank = 0; rank < asked.size(); ++rank) {
    VirtualRank& own = ranks[static_cast<std::size_t>(rank)];
    own.input = asked.input(rank);
    own.output = asked.output(rank);
  }
  std::int64_t done = 0;
  const std::int64_t length = longest_block(asked.call(ranks[0], 0));
  do {
    std::int64_t count = 0;
    for (int rank = 0; rank < asked.size(); ++rank) {
      VirtualRank& own = ranks[static_cast<std::size_t>(rank)];
      const Layout layout(nodes, rank, leader_places(nodes));
      const Call call = asked.call(own, rank);
      count = std::min(length - done, longest_part(call, layout, bytes));
      own.next = 0;
      own.stages = plan_of(call, layout, {done, count}, [&](std::int64_t elements) {
        own.beside.assign(static_cast<std::size_t>(elements), -2);
        return own.beside.data();
      });
    }
    run_plans(nodes, ranks);
    done += std::max<std::int64_t>(count, 1);
  } while (done < length);
  for (int rank = 0; rank < asked.size(); ++rank) {
    const VirtualRank& own = ranks[static_cast<std::size_t>(rank)];
    EXPECT_TRUE(own.output == asked.expected(rank)) << "rank " << rank;
    EXPECT_TRUE(own.input == asked.input(rank)) << "the input of rank " << rank;
  }
}

std::vector<Case> cases(const Ranks& nodes, std::int64_t count) {
  const auto size = static_cast<int>(nodes.size());
  const Counts even(static_cast<std::size_t>(size), count);
  std::vector<Case> all = {{OpKind::kBarrier, even}, {OpKind::kAllReduce, even}};
  for (int root = 0; root < size; ++root) {
    all.push_back({OpKind::kReduce, even, root});
    all.push_back({OpKind::kBroadcast, even, root});
  }
  if (Layout(nodes, 0).is_even()) all.push_back({OpKind::kAllToAll, even});
  Counts uneven, of_one(static_cast<std::size_t>(size), 0);
  for (std::int64_t rank = 0; rank < size; ++rank) uneven.push_back(rank * (size - rank) * count / size);
  of_one.back() = count;
  for (const Counts& counts : {even, uneven, of_one}) {
    all.push_back({OpKind::kAllGather, counts});
    all.push_back({OpKind::kReduceScatter, counts});
  }
  return all;
}

constexpr std::int64_t kWhole = 1 << 30, kRails = (64 << 10) / 8;

TEST(Plan, IsRightOnEveryLayout) {
  for (int size = 3; size <= 6; ++size) {
    for (const Ranks& nodes : layouts(size)) {
      if (!Layout(nodes, 0).pays()) continue;
      // The last: long enough for the rails of all_gather.
      for (const std::int64_t count : {0, 1, 21, size == 5 ? 2000 : 5}) {
        for (const Case& each : cases(nodes, count)) {
          SCOPED_TRACE(std::string(name_of(each.kind)) + " on nodes " + testing::PrintToString(nodes));
          for (const std::int64_t bytes : {kWhole, std::int64_t{8} * 8 * size})
            expect_right(nodes, each, bytes);
          if (testing::Test::HasFailure()) return;
        }
      }
    }
  }
}

// Vectors that are long enough for rails.
TEST(Plan, IsRightOnRandomLayouts) {
  std::mt19937 random(11);  // NOLINT(cert-msc51-cpp): the same layouts every time
  for (int turn = 0; turn < 40; ++turn) {
    const std::vector<Ranks> all = layouts(4 + turn % 4);
    const Ranks& nodes = all[random() % all.size()];
    if (!Layout(nodes, 0).pays()) continue;
    for (const Case& each : cases(nodes, kRails + 13)) {
      SCOPED_TRACE(std::string(name_of(each.kind)) + " on nodes " + testing::PrintToString(nodes));
      expect_right(nodes, each, kWhole);
      if (testing::Test::HasFailure()) return;
    }
  }
}

// A vector of the user's may be in memory that cannot be written to.
TEST(Plan, WritesNothingToTheVectorOfARoot) {
  const Ranks nodes = {0, 0, 0, 1, 1, 2, 2};
  for (const std::int64_t count : {kRails - 1, kRails}) {
    for (int root = 0; root < static_cast<int>(nodes.size()); ++root) {
      const Call call{.kind = OpKind::kBroadcast, .dtype = DType::kInt64, .root = root, .count = count};
      for (const Stage& stage : outline(call, Layout(nodes, root))) {
        EXPECT_EQ(stage.call.kind, OpKind::kBroadcast);
        EXPECT_EQ(stage.call.root, stage.own) << "root " << root << ", stage " << stage.number;
      }
    }
  }
}

// As many messages of a rank as there are other nodes. Where nothing lies apart, nothing is moved.
TEST(Plan, OfAnAllToAllHasOneMessageForEachNode) {
  Values input(6 * 4), output(6 * 4), beside(2 * 6 * 4);
  const auto plan = [&](const Ranks& nodes, Part part) {
    const Call call{.kind = OpKind::kAllToAll,
                    .dtype = DType::kInt64,
                    .input = input.data(),
                    .output = output.data(),
                    .count = 4};
    return plan_of(call, Layout(nodes, 4), part, [&](std::int64_t) { return beside.data(); });
  };
  const auto whole = plan({0, 0, 1, 1, 2, 2}, {0, 4});
  ASSERT_EQ(whole.size(), 4);  // a call on the node for each node, and one along the rail
  for (const std::size_t node : {std::size_t{0}, std::size_t{1}, std::size_t{2}}) {
    EXPECT_TRUE(whole[node].is_on_node());
    EXPECT_EQ(whole[node].call.count, 4);
    EXPECT_EQ(whole[node].call.input, input.data() + 8 * node);
  }
  EXPECT_EQ(whole[3].members, (Ranks{0, 2, 4}));
  EXPECT_EQ(whole[3].call.count, 2 * 4);
  EXPECT_EQ(whole[3].call.output, output.data());
  for (const auto& moved : {plan({0, 0, 1, 1, 2, 2}, {0, 3}), plan({0, 1, 2, 0, 1, 2}, {0, 4})}) {
    EXPECT_EQ(moved.size(), 6);
    EXPECT_TRUE(moved.front().is_own() && moved.back().is_own());
  }
}

// Every rank that can uses the network, as many on each node.
TEST(Plan, HasARailForEveryRankThatAllNodesHave) {
  const auto between = [](const Ranks& nodes, int rank) -> Ranks {
    const Call call{.kind = OpKind::kAllReduce, .dtype = DType::kInt64, .count = kRails};
    for (const Stage& stage : outline(call, Layout(nodes, rank))) {
      if (!stage.is_on_node()) return stage.members;
    }
    return {};
  };
  const Ranks uneven = {0, 0, 0, 1, 1}, in_turns = {0, 1, 0, 1, 0}, alone = {0, 0, 0, 1};
  EXPECT_EQ(between(uneven, 0), (Ranks{0, 3}));
  EXPECT_EQ(between(uneven, 1), (Ranks{1, 4}));
  EXPECT_EQ(between(uneven, 2), Ranks{});
  EXPECT_EQ(between(in_turns, 2), (Ranks{2, 3}));
  EXPECT_EQ(between(alone, 0), (Ranks{0, 3}));
  EXPECT_EQ(between(alone, 1), Ranks{});
}

}  // namespace
}  // namespace altorch::hierarchical
