// SPDX-License-Identifier: BSD-3-Clause
// Holds the cost formulas against the schedules themselves: a small event simulation prices what
// the ranks really do.
#include "collectives/cost.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <deque>
#include <limits>
#include <map>
#include <utility>
#include <vector>

namespace altorch {
namespace {

// When the last rank is done if each rank sends one message and receives one at a time, a message
// takes alpha + beta * elements from when both sides are ready, and an element reduced takes gamma.
class Simulation {
 public:
  Simulation(const std::vector<Schedule>& schedules, const CostModel& model) : model_(model) {
    for (const Schedule& schedule : schedules) ranks_.push_back({&schedule});
  }

  double run() {
    for (std::size_t rank = 0; rank < ranks_.size(); ++rank) begin_round(rank, 0.0);
    while (carry_first_message()) {
    }
    double end = 0;
    for (const Rank& rank : ranks_) {
      EXPECT_EQ(rank.round, rank.schedule->rounds.size()) << "a rank is stuck";
      end = std::max(end, rank.ready);
    }
    return end;
  }

 private:
  struct Rank {
    const Schedule* schedule;
    std::size_t round = 0;
    std::uint32_t in_flight = 0;
    double ready = 0;  // when all that this rank has finished was finished
    double send_port = 0, receive_port = 0;
  };
  struct Posted {
    std::int64_t count;
    double at;
    int number;  // of two that could start, the one posted first does
  };
  using Queue = std::deque<Posted>;

  void begin_round(std::size_t r, double now) {
    Rank& rank = ranks_[r];
    rank.ready = std::max(rank.ready, now);
    for (; rank.round < rank.schedule->rounds.size(); ++rank.round) {
      const Round& round = rank.schedule->rounds[rank.round];
      const double posted = rank.ready;
      for (auto i = round.locals_begin; i < round.locals_end; ++i) {
        const Step& step = rank.schedule->steps[i];
        if (step.kind == StepKind::kReduce) rank.ready += model_.gamma * static_cast<double>(step.c.count);
        if (step.kind == StepKind::kCombine) rank.ready += model_.gamma * static_cast<double>(step.a.count);
      }
      for (auto i = round.messages_begin; i < round.messages_end; ++i) {
        const Step& step = rank.schedule->steps[i];
        const auto peer = static_cast<std::size_t>(step.peer);
        const bool sends = step.kind == StepKind::kSend;
        auto& pair = pairs_[sends ? std::pair(r, peer) : std::pair(peer, r)];
        (sends ? pair.first : pair.second).push_back({step.a.count, posted, ++posts_});
        ++rank.in_flight;
      }
      if (rank.in_flight > 0) return;
    }
  }

  bool carry_first_message() {
    double first = std::numeric_limits<double>::infinity();
    int number = 0;
    std::pair<std::size_t, std::size_t> chosen;
    for (const auto& [ends, queues] : pairs_) {
      if (queues.first.empty() || queues.second.empty()) continue;
      const double start = std::max({queues.first.front().at, queues.second.front().at,
                                     ranks_[ends.first].send_port, ranks_[ends.second].receive_port});
      if (start < first || (start == first && queues.first.front().number < number)) {
        first = start;
        number = queues.first.front().number;
        chosen = ends;
      }
    }
    if (first == std::numeric_limits<double>::infinity()) return false;
    auto& queues = pairs_[chosen];
    const double end = first + model_.alpha + model_.beta * static_cast<double>(queues.first.front().count);
    queues.first.pop_front();
    queues.second.pop_front();
    ranks_[chosen.first].send_port = ranks_[chosen.second].receive_port = end;
    for (const std::size_t r : {chosen.first, chosen.second}) {
      Rank& rank = ranks_[r];
      rank.ready = std::max(rank.ready, end);
      if (--rank.in_flight > 0) continue;
      ++rank.round;
      begin_round(r, rank.ready);
    }
    return true;
  }

  const CostModel model_;
  int posts_ = 0;
  std::vector<Rank> ranks_;
  std::map<std::pair<std::size_t, std::size_t>, std::pair<Queue, Queue>> pairs_;  // sends, receives
};

double simulated(const Algorithm& algorithm, int p, std::int64_t count, const CostModel& model) {
  std::vector<Schedule> schedules;
  for (int rank = 0; rank < p; ++rank)
    schedules.push_back(algorithm.build({.rank = rank, .size = p, .count = count}));
  return Simulation(schedules, model).run();
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
