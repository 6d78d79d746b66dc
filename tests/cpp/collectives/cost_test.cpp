// SPDX-License-Identifier: BSD-3-Clause
// Compares the cost formulas with the event simulation of the schedules.
#include "collectives/cost.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>

#include "simulate/event_simulation.h"

namespace altorch {
namespace {

// Seconds by events. An element is one byte.
double simulated(const Algorithm& algorithm, int p, std::int64_t count, const CostModel& model) {
  EventSimulation events(
      {.nodes = p, .alpha = model.alpha, .beta = model.beta, .rank_beta = 0, .gamma = model.gamma}, 1);
  for (int rank = 0; rank < p; ++rank) events.add(algorithm.build({.rank = rank, .size = p, .count = count}));
  return events.run();
}

constexpr CostModel kOnlyMessages{1, 0, 0};
constexpr CostModel kOnlyBytes{0, 1, 0};
constexpr CostModel kOnlyReduction{0, 0, 1};

bool is_power_of_two(int p) { return std::has_single_bit(static_cast<unsigned>(p)); }

// Elements that every number of ranks up to 16 divides.
constexpr std::int64_t kCount = 720720;

TEST(Cost, MatchesTheSchedulesForPowersOfTwo) {
  for (const Algorithm* each : algorithms()) {
    const Algorithm& algorithm = *each;
    for (const int p : {1, 2, 4, 8, 16}) {
      const auto n = algorithm.kind == OpKind::kBarrier ? 0 : kCount;
      for (const CostModel& model : {kOnlyMessages, kOnlyBytes, kOnlyReduction, CostModel{1000, 1, 0.5}}) {
        const double formula = algorithm.cost(p, static_cast<double>(n), model);
        EXPECT_NEAR(simulated(algorithm, p, n, model), formula, 1e-6 * formula)
            << name_of(algorithm.kind) << " " << algorithm.name << " p=" << p << " alpha=" << model.alpha
            << " beta=" << model.beta << " gamma=" << model.gamma;
      }
    }
  }
}

// Elsewhere some ranks have less to do than the formula's worst case, never more.
TEST(Cost, BoundsTheSchedulesForOtherNumbersOfRanks) {
  for (const Algorithm* each : algorithms()) {
    const Algorithm& algorithm = *each;
    for (int p = 3; p <= 16; ++p) {
      if (is_power_of_two(p)) continue;
      const auto n = algorithm.kind == OpKind::kBarrier ? 0 : kCount;
      for (const CostModel& model : {kOnlyMessages, kOnlyBytes, kOnlyReduction}) {
        const double formula = algorithm.cost(p, static_cast<double>(n), model);
        const double price = simulated(algorithm, p, n, model);
        EXPECT_LE(price, formula * (1 + 1e-9)) << algorithm.name << " p=" << p;
        EXPECT_GE(price, formula * 0.6) << name_of(algorithm.kind) << " " << algorithm.name << " p=" << p
                                        << " alpha=" << model.alpha << " beta=" << model.beta;
      }
    }
  }
}

// The published figures: message rounds of the busiest rank, and elements that the busiest rank
// sends.
TEST(Cost, RoundsAndElementsSentAreThePublishedOnes) {
  struct Row {
    OpKind kind;
    const char* name;
    int p;
    int rounds;
    double sent;  // in vectors or blocks
  };
  const Row rows[] = {
      {OpKind::kAllReduce, "one_shot", 5, 1, 4},
      {OpKind::kAllReduce, "pairwise", 8, 2, 1.75},
      {OpKind::kReduce, "pairwise", 8, 2, 1},
      {OpKind::kAllReduce, "recursive_doubling", 8, 3, 3},
      {OpKind::kAllReduce, "recursive_doubling", 6, 4, 3},
      {OpKind::kAllReduce, "rabenseifner", 8, 6, 1.75},
      {OpKind::kAllReduce, "ring", 8, 14, 1.75},
      {OpKind::kAllReduce, "ring", 5, 8, 1.6},
      {OpKind::kReduce, "linear", 8, 1, 1},
      {OpKind::kReduce, "binomial", 8, 3, 1},
      {OpKind::kBroadcast, "linear", 8, 1, 7},
      {OpKind::kBroadcast, "binomial", 8, 2, 3},
      {OpKind::kBroadcast, "scatter_all_gather", 8, 9, 1.75},
      {OpKind::kBroadcast, "pairwise", 8, 2, 1.75},
      {OpKind::kAllGather, "linear", 7, 1, 6},
      {OpKind::kAllGather, "recursive_doubling", 8, 3, 7},
      {OpKind::kAllGather, "bruck", 7, 3, 6},
      {OpKind::kAllGather, "ring", 7, 6, 6},
      {OpKind::kReduceScatter, "ring", 7, 6, 6},
      {OpKind::kReduceScatter, "pairwise", 7, 1, 6},
      {OpKind::kAllToAll, "linear", 7, 1, 6},
      {OpKind::kAllToAll, "pairwise", 7, 6, 6},
      {OpKind::kAllToAll, "bruck", 8, 3, 12},
      {OpKind::kGather, "binomial", 8, 2, 4},
      {OpKind::kGather, "linear", 8, 1, 1},
      {OpKind::kScatter, "binomial", 8, 2, 7},
      {OpKind::kScatter, "linear", 8, 1, 7},
      {OpKind::kScan, "recursive_doubling", 8, 3, 3},
      {OpKind::kExscan, "recursive_doubling", 8, 4, 4},
      {OpKind::kBarrier, "linear", 5, 1, 0},
      {OpKind::kBarrier, "dissemination", 9, 4, 0},
  };
  for (const Row& row : rows) {
    const Algorithm* algorithm = find_algorithm(row.kind, row.name);
    ASSERT_NE(algorithm, nullptr) << row.name;
    int rounds = 0;
    std::int64_t sent = 0;
    for (int rank = 0; rank < row.p; ++rank) {
      const Schedule schedule = algorithm->build({.rank = rank, .size = row.p, .count = kCount});
      std::int64_t mine = 0;
      for (const Step& step : schedule.steps) mine += step.kind == StepKind::kSend ? step.a.count : 0;
      sent = std::max(sent, mine);
      rounds = std::max(rounds, static_cast<int>(std::count_if(
                                    schedule.rounds.begin(), schedule.rounds.end(),
                                    [](const Round& r) { return r.messages_begin != r.messages_end; })));
    }
    EXPECT_EQ(rounds, row.rounds) << name_of(row.kind) << " " << row.name << " p=" << row.p;
    EXPECT_NEAR(static_cast<double>(sent), row.sent * kCount, 0.5)
        << name_of(row.kind) << " " << row.name << " p=" << row.p;
  }
}

}  // namespace
}  // namespace altorch
