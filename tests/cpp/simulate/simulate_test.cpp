// SPDX-License-Identifier: BSD-3-Clause
#include "simulate/simulate.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "base/error.h"
#include "base/shape.h"
#include "select/costs.h"
#include "simulate/lower_bound.h"

namespace altorch {
namespace {

Operation call_of(OpKind kind, std::int64_t elements) {
  Operation call;
  call.kind = kind;
  call.dtype = DType::kFloat32;
  call.count = kind == OpKind::kBarrier ? 0 : elements;
  return call;
}

std::vector<OpKind> collectives() {
  std::vector<OpKind> kinds;
  for (int each = 0; each < kRoutedKindCount; ++each)
    if (const auto kind = static_cast<OpKind>(each); is_collective(kind)) kinds.push_back(kind);
  return kinds;
}

// Times of memory are measured, so that a bound of a network does not hold for them.
TEST(Simulate, IsNeverBelowTheLowerBoundOfItsMessages) {
  for (const OpKind kind : collectives()) {
    for (const auto& [nodes, per_node] : {std::pair(2, 1), {5, 1}, {8, 1}, {2, 2}, {3, 4}, {16, 2}}) {
      for (const auto& [elements, gamma] :
           {std::pair(std::int64_t{0}, 0.0), {1, 1e-9}, {1000, 5e-11}, {100003, 0.0}, {6000000, 5e-11}}) {
        const Network network{.nodes = nodes, .per_node = per_node, .gamma = gamma};
        const Operation call = call_of(kind, elements);
        const Simulated result = simulate(call, network);
        EXPECT_GE(result.seconds, result.lower_bound * (1 - 1e-9))
            << name_of(kind) << " of " << elements << " on " << nodes << " x " << per_node;
        EXPECT_FALSE(result.stages.empty());
        double sum = 0;
        for (const SimulatedStage& stage : result.stages) sum += stage.seconds;
        EXPECT_NEAR(sum, result.seconds, 1e-12);
      }
    }
  }
}

TEST(Simulate, TakesMeasuredTimesOnOneNode) {
  const Operation call = call_of(OpKind::kAllReduce, 4096);
  const Simulated result = simulate(call, {.per_node = 4});
  EXPECT_EQ(result.route, "shm");
  EXPECT_EQ(result.seconds, measured_seconds(On::kHost, call, 4));
  EXPECT_EQ(result.stages.front().source, "measured");
}

// Eight rails send through one port, so they take as long as one that sends all of it.
TEST(Simulate, RailsShareThePortOfTheirNode) {
  const Network network{.nodes = 4, .per_node = 8, .alpha = 0, .beta = 1e-9, .rank_beta = 0, .gamma = 0};
  const std::int64_t elements = 1 << 20;
  const Simulated result = simulate(call_of(OpKind::kAllReduce, elements), network);
  double between = 0;
  for (const SimulatedStage& stage : result.stages)
    if (stage.source == "events") between += stage.seconds;
  EXPECT_NEAR(between, 2.0 * 3 / 4 * elements * 4 * 1e-9, 1e-4);
}

// A rank alone may be slower than the port of its node.
TEST(Simulate, ARankSendsAtItsOwnRate) {
  const Network network{.nodes = 2, .alpha = 0, .beta = 1e-9, .rank_beta = 4e-9, .gamma = 0, .call = 0};
  EXPECT_NEAR(simulate(call_of(OpKind::kBroadcast, 1000), network).seconds, 4000 * 4e-9, 1e-12);
}

// Messages of all ranks queue at the port of their node.
TEST(Simulate, MessagesOfOneNodeShareItsPort) {
  const Network network{.nodes = 2,
                        .per_node = 4,
                        .alpha = 0,
                        .beta = 1e-9,
                        .rank_beta = 0,
                        .on_node_alpha = 0,
                        .on_node_beta = 0,
                        .call = 0};
  const Simulated result = simulate(call_of(OpKind::kAllToAll, 1000), network);
  EXPECT_NEAR(result.seconds, 4 * 4 * 4000 * 1e-9, 1e-9);
}

TEST(Simulate, TakesTheFormulaForTooManyMessages) {
  const Network network{.nodes = 16384};
  const Simulated result = simulate(call_of(OpKind::kAllToAll, 1024), network);
  ASSERT_EQ(result.stages.size(), 2U);
  EXPECT_EQ(result.stages[0].source, "formula");
  EXPECT_GT(result.stages[0].messages, kMostSimulatedMessages);
  EXPECT_GE(result.seconds, result.lower_bound);
}

// The segments of a vector are counted before a schedule is built.
TEST(Simulate, TakesTheFormulaForTooManySegments) {
  const Simulated result = simulate(call_of(OpKind::kAllReduce, std::int64_t{1} << 45), {.nodes = 16});
  EXPECT_EQ(result.stages[0].source, "formula");
}

// A root receives from all others, one after another.
TEST(Simulate, RootedCallsOfManyRanksEnd) {
  const Simulated result = simulate(call_of(OpKind::kGather, 1),
                                    {.nodes = 4096, .alpha = 1e-6, .beta = 0, .rank_beta = 0, .call = 0});
  EXPECT_NEAR(result.seconds, 4095e-6, 1e-9);
}

TEST(Simulate, RejectsUnsupportedCalls) {
  const Operation call = call_of(OpKind::kAllReduce, 4);
  const auto refuses = [](const Operation& asked, const Network& network) {
    try {
      simulate(asked, network);
    } catch (const Error& error) {
      return error.kind() == ErrorKind::kInvalidArgument;
    }
    return false;
  };
  EXPECT_TRUE(refuses(call_of(OpKind::kSend, 4), {.nodes = 2}));
  EXPECT_TRUE(refuses(call, {.nodes = 0}));
  EXPECT_TRUE(refuses(call, {.nodes = 2, .per_node = -1}));
  EXPECT_TRUE(refuses(call, {.nodes = 1 << 17, .per_node = 2}));
  EXPECT_TRUE(refuses(call, {.nodes = 2, .per_node = 1025}));
  EXPECT_TRUE(refuses(call_of(OpKind::kAllReduce, std::int64_t{1} << 56), {.nodes = 2}));
  for (const double value : {-1.0, 2.0, std::nan(""), std::numeric_limits<double>::infinity()}) {
    EXPECT_TRUE(refuses(call, {.nodes = 2, .alpha = value}));
    EXPECT_TRUE(refuses(call, {.nodes = 2, .beta = value}));
    EXPECT_TRUE(refuses(call, {.nodes = 2, .rank_beta = value}));
    EXPECT_TRUE(refuses(call, {.nodes = 2, .gamma = value}));
  }
}

TEST(Simulate, ReportsProgress) {
  double last = 0;
  simulate(call_of(OpKind::kAllToAll, 1), {.nodes = 1100}, [&](double share) {
    EXPECT_GE(share, last);
    EXPECT_LE(share, 1);
    last = share;
  });
  EXPECT_GT(last, 0);
}

TEST(LowerBound, MatchesChanEtAl2007) {
  const Network network{.nodes = 8, .alpha = 1, .beta = 1, .rank_beta = 0, .gamma = 1};
  EXPECT_DOUBLE_EQ(lower_bound_seconds(OpKind::kAllReduce, 800, network), 3 + 2 * 700);
  EXPECT_DOUBLE_EQ(lower_bound_seconds(OpKind::kAllGather, 100, network), 3 + 700);
  EXPECT_DOUBLE_EQ(lower_bound_seconds(OpKind::kBroadcast, 800, network), 3 + 800);
  EXPECT_DOUBLE_EQ(lower_bound_seconds(OpKind::kAllToAll, 100, network), 3 + 700);
  EXPECT_DOUBLE_EQ(lower_bound_seconds(OpKind::kReduceScatter, 100, network), 3 + 700);
  EXPECT_DOUBLE_EQ(lower_bound_seconds(OpKind::kBarrier, 0, network), 3);
  EXPECT_EQ(lower_bound_seconds(OpKind::kAllReduce, 800, {}), 0);
}

}  // namespace
}  // namespace altorch
