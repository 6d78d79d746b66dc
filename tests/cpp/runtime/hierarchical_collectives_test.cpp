// SPDX-License-Identifier: BSD-3-Clause
#include "runtime/hierarchical_collectives.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <random>

#include "support/says.h"
#include "transports/conformance.h"
#include "transports/loopback/channel.h"
#include "transports/shm/shm_ranks.h"

namespace altorch {
namespace {

using conformance::expect;
using Ranks = std::vector<int>;
using Values = std::vector<float>;
using Counts = std::vector<std::int64_t>;

constexpr std::size_t kLimit = 1 << 20;

// `body(rank, collectives)` on a thread per rank, which share memory where they are on one node;
// what each threw.
template <typename Body>
std::vector<std::string> on_nodes(const Ranks& node_of_rank, Body body, LoopbackOptions options = {}) {
  auto channels = make_loopback_channels(static_cast<int>(node_of_rank.size()), options);
  MapStore store;
  return on_threads(static_cast<int>(node_of_rank.size()), [&](int rank) {
    const hierarchical::Layout layout(node_of_rank, rank);
    const int size = static_cast<int>(layout.neighbours().size());
    std::optional<ShmCollectives> shared;
    if (size > 1) {
      const std::size_t area = shm::Segment::area_bytes(size, kLimit);
      auto memory = share_memory(store, std::to_string(layout.own_node()), layout.own_place(), size,
                                 shm::Segment::bytes(size, area), std::chrono::seconds(30));
      shared.emplace(shm::Segment(std::move(memory), layout.own_place(), size, area));
    }
    Ranks leader_places;
    for (int each = 0; each < layout.nodes(); ++each)
      leader_places.push_back(static_cast<int>(layout.ranks_of(each).size()) - 1);
    const Node node{node_of_rank, leader_places, shared ? &*shared : nullptr};
    HierarchicalCollectives own(node, *channels[static_cast<std::size_t>(rank)]);
    body(rank, own);
  });
}

void run(HierarchicalCollectives& collectives, const Call& call, std::uint64_t identity) {
  Request request;
  collectives.start(call, identity, {}, request);
  std::optional<Error> error;
  State state = State::kPending;
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(120);
  while ((state = collectives.test(request, error)) == State::kPending) {
    expect(std::chrono::steady_clock::now() < deadline, std::string("no end of ") + name_of(call.kind));
    std::this_thread::yield();
  }
  expect(state == State::kDone, error ? error->what() : "it failed");
}

Values numbers(std::int64_t count, int rank) {
  Values made(static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < made.size(); ++i)
    made[i] = static_cast<float>((i * 7 + 3 * static_cast<std::size_t>(rank)) % 32);
  return made;
}
Values sum(std::int64_t count, int size) {
  Values all(static_cast<std::size_t>(count));
  for (int rank = 0; rank < size; ++rank) {
    const Values each = numbers(count, rank);
    for (std::size_t i = 0; i < all.size(); ++i) all[i] += each[i];
  }
  return all;
}

// Of all_gather and reduce_scatter. Equal ones are given as such.
void blocks_are_right(const Ranks& nodes, int rank, HierarchicalCollectives& own, const Counts& counts,
                      bool in_place, std::uint64_t& identity) {
  const int size = static_cast<int>(nodes.size());
  const bool even = std::adjacent_find(counts.begin(), counts.end(), std::not_equal_to<>()) == counts.end();
  const std::int64_t count = counts[static_cast<std::size_t>(rank)];
  const auto begin = std::accumulate(counts.begin(), counts.begin() + rank, std::int64_t{0});
  const auto total = std::accumulate(counts.begin(), counts.end(), std::int64_t{0});
  Values expected;
  for (int each = 0; each < size; ++each) {
    const Values block = numbers(counts[static_cast<std::size_t>(each)], each);
    expected.insert(expected.end(), block.begin(), block.end());
  }
  Values input = numbers(count, rank), all(static_cast<std::size_t>(total), -1.0f);
  float* const place = all.data() + begin;
  if (in_place) std::copy(input.begin(), input.end(), place);
  Call gather{OpKind::kAllGather,
              DType::kFloat32,
              ReduceOp::kSum,
              0,
              in_place ? place : input.data(),
              all.data(),
              count};
  if (!even) gather.output_counts = counts;
  run(own, gather, ++identity);
  expect(all == expected, "all_gather");

  const Values operand = numbers(total, rank), sums = sum(total, size);
  Values from = operand, output(static_cast<std::size_t>(count), -1.0f);
  float* const to = in_place ? from.data() + begin : output.data();
  Call scatter{OpKind::kReduceScatter, DType::kFloat32, ReduceOp::kSum, 0, from.data(), to, count};
  if (!even) scatter.input_counts = counts;
  run(own, scatter, ++identity);
  expect(Values(to, to + count) == Values(sums.begin() + begin, sums.begin() + begin + count),
         "reduce_scatter");
  expect(in_place || from == operand, "reduce_scatter changes its input");
}

void all_are_right(const Ranks& nodes, int rank, HierarchicalCollectives& own, std::int64_t count) {
  const int size = static_cast<int>(nodes.size());
  std::uint64_t identity = 0;
  run(own, Call{OpKind::kBarrier}, ++identity);
  Values vector = numbers(count, rank);
  const Values expected = sum(count, size);
  run(own, Call{OpKind::kAllReduce, DType::kFloat32, ReduceOp::kSum, 0, nullptr, vector.data(), count},
      ++identity);
  expect(vector == expected, "all_reduce");
  for (int root = 0; root < size; ++root) {
    for (const bool in_place : {false, true}) {
      Values input = numbers(count, rank), output(static_cast<std::size_t>(count), -1.0f);
      float* const to = in_place ? input.data() : output.data();
      run(own, Call{OpKind::kReduce, DType::kFloat32, ReduceOp::kSum, root, input.data(), to, count},
          ++identity);
      if (rank == root) expect((in_place ? input : output) == expected, "reduce");
      if (rank != root || !in_place) expect(input == numbers(count, rank), "reduce changes its input");
      if (rank != root) expect(output == Values(output.size(), -1.0f), "reduce changes an output");
    }
    Values shown = numbers(count, rank);
    run(own, Call{OpKind::kBroadcast, DType::kFloat32, ReduceOp::kSum, root, nullptr, shown.data(), count},
        ++identity);
    expect(shown == numbers(count, root), "broadcast");
  }
  for (const bool in_place : {false, true}) {
    blocks_are_right(nodes, rank, own, Counts(nodes.size(), count), in_place, identity);
    // The longest block is neither the first nor the last; one has nothing.
    Counts uneven;
    for (std::int64_t each = 0; each < size; ++each) uneven.push_back(each * (size - each) * count / size);
    blocks_are_right(nodes, rank, own, uneven, in_place, identity);
  }
}

// Numbered in the order of their first ranks.
Ranks numbered(Ranks nodes) {
  std::map<int, int> numbers;
  for (int& node : nodes) node = numbers.emplace(node, static_cast<int>(numbers.size())).first->second;
  return nodes;
}

void expect_all_right(const Ranks& nodes, std::initializer_list<std::int64_t> lengths,
                      LoopbackOptions options = {}) {
  const auto errors = on_nodes(
      nodes,
      [&](int rank, HierarchicalCollectives& own) {
        for (const std::int64_t count : lengths) all_are_right(nodes, rank, own, count);
      },
      options);
  EXPECT_EQ(errors, all_good(static_cast<int>(nodes.size()))) << testing::PrintToString(nodes);
}

TEST(HierarchicalCollectives, AreRightOnAnyNodes) {
  for (const Ranks& nodes :
       {Ranks{0, 0, 1, 1}, Ranks{0, 0, 0, 1}, Ranks{0, 1, 0, 1}, Ranks{0, 1, 1, 2, 2, 2},
        Ranks{0, 0, 1, 1, 2, 2}, Ranks{0, 1, 1}, Ranks{0, 0, 1, 0, 1}, Ranks{0, 0, 1, 2}}) {
    expect_all_right(nodes, {0, 1, 5, 1000, 70'001});
    expect_all_right(nodes, {0, 1, 5, 1000, 70'001}, {.eager_bytes = 0, .longest_delay = 5, .seed = 3});
  }
}

TEST(HierarchicalCollectives, AreRightOnRandomNodes) {
  std::mt19937 random(7);  // NOLINT(cert-msc51-cpp): the same layouts every time
  const auto upto = [&](int most) { return static_cast<int>(random() % static_cast<unsigned>(most)); };
  for (int turn = 0; turn < 10; ++turn) {
    Ranks nodes(static_cast<std::size_t>(3 + upto(6)));
    const int most = 2 + upto(3);
    for (int& node : nodes) node = upto(most);
    nodes = numbered(nodes);
    if (hierarchical::Layout(nodes, 0).pays()) expect_all_right(nodes, {3, 20'003});
  }
}

// Longer than what one plan carries.
TEST(HierarchicalCollectives, CarryLongVectorsInParts) {
  constexpr std::int64_t kCount = (20 << 20) / 4 + 7;
  for (const Ranks& nodes : {Ranks{0, 0, 1, 1}, Ranks{0, 1, 0}, Ranks{0, 0, 1, 1, 1}}) {
    const auto errors = on_nodes(nodes, [&](int rank, HierarchicalCollectives& own) {
      Values vector = numbers(kCount, rank);
      run(own, Call{OpKind::kAllReduce, DType::kFloat32, ReduceOp::kSum, 0, nullptr, vector.data(), kCount},
          1);
      expect(vector == sum(kCount, static_cast<int>(nodes.size())), "all_reduce");
      std::uint64_t identity = 1;
      Counts counts(nodes.size(), 1 << 20);
      blocks_are_right(nodes, rank, own, counts, /*in_place=*/false, identity);
      counts.back() += 7;
      blocks_are_right(nodes, rank, own, counts, /*in_place=*/true, identity);
    });
    EXPECT_EQ(errors, all_good(static_cast<int>(nodes.size())));
  }
}

// Ranks that are alone on their nodes wait for no turn there, and messages of different parts
// overtake each other.
TEST(HierarchicalCollectives, KeepPartsApartWhereRanksAreAlone) {
  constexpr std::int64_t kCount = (12 << 20) / 4 + 7;
  for (const Ranks& nodes : {Ranks{0, 0, 1, 2}, Ranks{0, 1, 2, 2, 1}}) {
    for (const std::uint64_t seed : {1u, 2u, 3u}) {
      const auto errors = on_nodes(
          nodes,
          [&](int rank, HierarchicalCollectives& own) {
            Values vector = numbers(kCount, rank);
            run(own,
                Call{OpKind::kAllReduce, DType::kFloat32, ReduceOp::kSum, 0, nullptr, vector.data(), kCount},
                1);
            expect(vector == sum(kCount, static_cast<int>(nodes.size())), "all_reduce");
          },
          {.eager_bytes = 0, .longest_delay = 200, .seed = seed});
      EXPECT_EQ(errors, all_good(static_cast<int>(nodes.size())));
    }
  }
}

// The sum of each node first: what comes out does not depend on the order in which ranks come.
TEST(HierarchicalCollectives, GiveAllRanksTheSameBits) {
  const Ranks nodes = {0, 0, 1, 1};
  for (const std::int64_t count : {100, 100'003}) {
    std::vector<Values> results(nodes.size());
    const auto errors = on_nodes(nodes, [&](int rank, HierarchicalCollectives& own) {
      Values vector(static_cast<std::size_t>(count));
      for (std::size_t i = 0; i < vector.size(); ++i)
        vector[i] = 1.0f / static_cast<float>(i + 3 + static_cast<std::size_t>(rank) * 17);
      run(own, Call{OpKind::kAllReduce, DType::kFloat32, ReduceOp::kSum, 0, nullptr, vector.data(), count},
          1);
      results[static_cast<std::size_t>(rank)] = vector;
    });
    EXPECT_EQ(errors, all_good(4));
    for (const Values& each : results) EXPECT_EQ(each, results[0]);
  }
}

TEST(HierarchicalCollectives, WaitForARankInAnotherCall) {
  const auto errors = on_nodes({0, 0, 1, 1}, [&](int rank, HierarchicalCollectives& own) {
    float value = 1;
    Request request;
    std::optional<Error> error;
    own.start(Call{OpKind::kAllReduce, DType::kFloat32, ReduceOp::kSum, 0, nullptr, &value, 1},
              /*identity=*/rank < 2 ? 1 : 2, /*protocol=*/{}, request);
    // The two of a node agree: they go as far as to the messages.
    for (int poll = 0; poll < 20'000; ++poll)
      expect(own.test(request, error) == State::kPending, "it took what was not for it");
    expect(own.cancel(request) && request.handle == 0, "no rank touches the tensor any more");
  });
  EXPECT_EQ(errors, all_good(4));
}

TEST(HierarchicalCollectives, OfferWhatTheyHaveAPlanFor) {
  const hierarchical::Layout two({0, 0, 1, 1}, 0), in_turns({0, 1, 0, 1}, 0), one({0, 0}, 0);
  EXPECT_TRUE(hierarchical::has_plan(Call{OpKind::kAllReduce}, two));
  EXPECT_TRUE(hierarchical::has_plan(Call{OpKind::kAllReduce}, in_turns));
  Call broadcast{OpKind::kBroadcast};
  EXPECT_FALSE(hierarchical::has_plan(broadcast, two));
  broadcast.count = 1 << 20;
  EXPECT_TRUE(hierarchical::has_plan(broadcast, two));
  EXPECT_FALSE(hierarchical::has_plan(Call{OpKind::kAllReduce}, one));
  EXPECT_TRUE(hierarchical::has_plan(Call{OpKind::kAllGather}, two));
  EXPECT_TRUE(hierarchical::has_plan(Call{OpKind::kAllGather}, in_turns));
  EXPECT_TRUE(hierarchical::has_plan(Call{OpKind::kReduceScatter}, in_turns));
  for (const OpKind kind : {OpKind::kAllToAll, OpKind::kGather, OpKind::kScatter})
    EXPECT_FALSE(hierarchical::has_plan(Call{kind}, two)) << name_of(kind);
}

TEST(HierarchicalCollectives, SayWhatHappens) {
  const hierarchical::Layout layout({0, 0, 1, 1}, 0);
  Call call{OpKind::kAllReduce, DType::kFloat32};
  call.count = 100;
  EXPECT_EQ(hierarchical::describe(call, layout),
            "stage 1: reduce of 100 elements among the 2 ranks of the node\n"
            "stage 2: all_reduce of 100 elements between nodes, with ranks 0 2\n"
            "stage 3: broadcast of 100 elements among the 2 ranks of the node\n");
  call.count = 1 << 20;
  EXPECT_TRUE(says(hierarchical::describe(call, layout), "reduce_scatter"));
  EXPECT_GT(HierarchicalCollectives::cost(call, layout, {}), 1e-6);
}

TEST(HierarchicalCollectives, EveryRankOfANodeEstimatesTheSameTime) {
  std::vector<double> seconds(4);
  const auto errors = on_nodes({0, 0, 1, 1}, [&](int rank, HierarchicalCollectives& own) {
    Call call{OpKind::kAllReduce, DType::kFloat32};
    call.count = 100;
    seconds[static_cast<std::size_t>(rank)] = own.estimate(call, {});
  });
  EXPECT_EQ(errors, std::vector<std::string>(4));
  EXPECT_GT(seconds[0], 1e-6);
  EXPECT_EQ(seconds, std::vector<double>(4, seconds[0]));
}

}  // namespace
}  // namespace altorch
