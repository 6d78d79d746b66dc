// SPDX-License-Identifier: BSD-3-Clause
#include "health/desync_queries.h"

#include <gtest/gtest.h>

#include "support/map_store.h"

namespace altorch {
namespace {

struct Rank {
  explicit Rank(const std::shared_ptr<MapStore>& job, const std::shared_ptr<MapStore>& group, int rank)
      : board(std::make_shared<DesyncBoard>(group, "pair", rank, 2)), queries(job) {
    queries.join(board);
  }
  std::shared_ptr<DesyncBoard> board;
  DesyncQueries queries;
};

TEST(DesyncQueries, ARankThatHasPassedTheOperationAnswers) {
  auto job = std::make_shared<MapStore>(), group = std::make_shared<MapStore>();
  Rank stalled(job, group, 0), ahead(job, group, 1);
  ahead.board->record({5, 77});
  stalled.board->record({5, 70});
  stalled.queries.ask("pair", {5, 70});
  stalled.queries.answer();
  EXPECT_FALSE(stalled.board->compare({5, 70}).has_value());
  ahead.queries.answer();
  const auto finding = stalled.board->compare({5, 70});
  ASSERT_TRUE(finding.has_value());
  EXPECT_EQ(finding->rank, 1);
  EXPECT_EQ(finding->called.fingerprint, 77u);
}

TEST(DesyncQueries, WhoAgreesOrDoesNotRememberSaysNothing) {
  auto job = std::make_shared<MapStore>(), group = std::make_shared<MapStore>();
  Rank stalled(job, group, 0), ahead(job, group, 1);
  ahead.board->record({5, 70});
  for (std::uint64_t sequence = 6; sequence < 6 + 512; ++sequence) ahead.board->record({sequence, 1});
  stalled.queries.ask("pair", {5, 71});    // forgotten
  stalled.queries.ask("pair", {517, 1});   // the same call
  stalled.queries.ask("other", {517, 2});  // of a group that it has not
  ahead.queries.answer();
  EXPECT_FALSE(stalled.board->compare({5, 71}).has_value());
  EXPECT_FALSE(stalled.board->compare({517, 2}).has_value());
}

}  // namespace
}  // namespace altorch
