// SPDX-License-Identifier: BSD-3-Clause
#include "collectives/algorithm.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "collectives/static_check.h"
#include "collectives/virtual_ranks.h"

namespace altorch {
namespace {

TEST(Algorithms, AreFoundByOperationAndName) {
  std::set<std::pair<OpKind, std::string>> seen;
  for (const Algorithm* each : algorithms()) {
    const Algorithm& algorithm = *each;
    EXPECT_EQ(find_algorithm(algorithm.kind, algorithm.name), &algorithm);
    EXPECT_TRUE(seen.emplace(algorithm.kind, algorithm.name).second) << algorithm.name << " stands twice";
  }
  EXPECT_EQ(find_algorithm(OpKind::kAllReduce, "dissemination"), nullptr);
  EXPECT_EQ(find_algorithm(OpKind::kSend, "ring"), nullptr);
}

TEST(Algorithms, StandTogetherByOperationAndSayWhatTheyAre) {
  std::set<OpKind> finished;
  const Algorithm* last = nullptr;
  for (const Algorithm* each : algorithms()) {
    const Algorithm& algorithm = *each;
    if (last != nullptr && last->kind != algorithm.kind) finished.insert(last->kind);
    EXPECT_EQ(finished.count(algorithm.kind), 0u) << name_of(algorithm.kind) << " stands in two places";
    EXPECT_FALSE(algorithm.summary.empty());
    EXPECT_FALSE(algorithm.cost_formula.empty());
    last = &algorithm;
  }
  // Every collective can be carried out with any counts.
  for (int kind = 0; kind < static_cast<int>(OpKind::kSend); ++kind) {
    bool any = false;
    for (const Algorithm* each : algorithms()) {
      const Algorithm& algorithm = *each;
      any = any || (static_cast<int>(algorithm.kind) == kind && !algorithm.even_only);
    }
    EXPECT_TRUE(any) << name_of(static_cast<OpKind>(kind));
  }
}

// Bytes, in segments of 1 MiB as the engine wishes them. What is not segmented gets no more than 8
// MiB at once.
TEST(Algorithms, NeedScratchThatDoesNotGrowWithTheGroup) {
  constexpr std::int64_t kMiB = 1 << 20;
  for (const Algorithm* each : algorithms()) {
    const Algorithm& algorithm = *each;
    const bool scatters = algorithm.kind == OpKind::kReduceScatter;
    if (!scatters && (algorithm.kind != OpKind::kAllReduce || !algorithm.pipelined)) continue;
    for (const int size : {2, 3, 4, 8, 9, 17, 18, 65, 66, 128, 129, 1000, 4096}) {
      for (const std::int64_t block :
           {std::int64_t{1000}, 4 * kMiB / size, std::max(64 * kMiB / size, 64 * kMiB / 1000)}) {
        for (const int rank : {0, size - 1}) {
          const Problem problem{
              .rank = rank, .size = size, .count = scatters ? block : block * size, .segment_count = kMiB};
          EXPECT_LE(algorithm.build(problem).scratch_count, 8 * kMiB)
              << algorithm.name << ", " << size << " ranks, blocks of " << block;
        }
      }
    }
  }
}

// More than 2 GiB and more than INT_MAX elements: nothing is computed in 32 bits.
TEST(Algorithms, BuildForCountsBeyond32Bits) {
  constexpr std::int64_t kHuge = (std::int64_t{1} << 40) + 3;
  for (const Algorithm* each : algorithms()) {
    const Algorithm& algorithm = *each;
    for (const int size : {2, 5, 8}) {
      const proof::Call call{
          .algorithm = &algorithm, .size = size, .root = 1, .count = kHuge, .segment = kHuge / 4};
      std::vector<Schedule> schedules;
      std::vector<proof::Layout> layouts;
      std::int64_t sent = 0;
      for (int rank = 0; rank < size; ++rank) {
        schedules.push_back(algorithm.build(proof::RankProblem(call, rank).get()));
        layouts.push_back(proof::layout_of(call, rank, schedules.back().scratch_count));
        for (const Step& step : schedules.back().steps)
          sent += step.kind == StepKind::kSend ? step.a.count : 0;
      }
      EXPECT_EQ(proof::check_statically(schedules, layouts), "") << call.describe();
      EXPECT_GE(sent, algorithm.kind == OpKind::kBarrier ? 0 : kHuge * (size - 1)) << call.describe();
    }
  }
}

}  // namespace
}  // namespace altorch
