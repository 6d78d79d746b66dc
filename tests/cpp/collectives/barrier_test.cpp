// SPDX-License-Identifier: BSD-3-Clause
#include "collectives/proof.h"

namespace altorch::proof {
namespace {

TEST(Barrier, IsProvedFor1To64Ranks) { prove(OpKind::kBarrier); }

// The purpose of a barrier: no rank leaves before the last rank has come.
TEST(Barrier, HoldsEveryRankUntilTheLastHasCome) {
  const Algorithm* algorithm = find_algorithm(OpKind::kBarrier, "dissemination");
  ASSERT_NE(algorithm, nullptr);
  for (int size = 2; size <= kLargestSize; ++size) {
    const auto late = static_cast<std::size_t>(size / 3);
    const auto channels = make_loopback_channels(size, delivery(static_cast<std::uint64_t>(size)));
    std::vector<Schedule> schedules;
    for (int rank = 0; rank < size; ++rank)
      schedules.push_back(algorithm->build({.rank = rank, .size = size}));
    std::vector<Execution> executions(schedules.size());
    const auto poll = [&](std::size_t i) {
      std::optional<Error> error;
      return executions[i].advance(error);
    };
    for (std::size_t i = 0; i < executions.size(); ++i) {
      if (i != late) executions[i].start(schedules[i], *channels[i], {}, 3);
    }
    for (int turn = 0; turn < 200; ++turn) {
      for (std::size_t i = 0; i < executions.size(); ++i) {
        if (i == late) continue;
        ASSERT_EQ(poll(i), State::kPending) << "rank " << i << " of " << size << " left too early";
      }
    }
    executions[late].start(schedules[late], *channels[late], {}, 3);
    std::size_t done = 0;
    for (int turn = 0; turn < 200 && done < executions.size(); ++turn) {
      done = 0;
      for (std::size_t i = 0; i < executions.size(); ++i) done += poll(i) == State::kDone ? 1 : 0;
    }
    ASSERT_EQ(done, executions.size()) << size << " ranks";
  }
}

}  // namespace
}  // namespace altorch::proof
