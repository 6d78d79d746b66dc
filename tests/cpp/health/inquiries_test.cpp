// SPDX-License-Identifier: BSD-3-Clause
#include "health/inquiries.h"

#include <gtest/gtest.h>

#include "support/map_store.h"

namespace altorch {
namespace {

struct Rank {
  explicit Rank(const std::shared_ptr<MapStore>& job, const std::shared_ptr<MapStore>& group, int rank)
      : board(std::make_shared<StallBoard>(group, "pair", rank, 2)), inquiries(job) {
    inquiries.join(board);
  }
  std::shared_ptr<StallBoard> board;
  Inquiries inquiries;
};

TEST(Inquiries, ARankThatHasPassedTheOperationAnswers) {
  auto job = std::make_shared<MapStore>(), group = std::make_shared<MapStore>();
  Rank stalled(job, group, 0), ahead(job, group, 1);
  ahead.board->record({5, 77});
  stalled.board->record({5, 70});
  stalled.inquiries.ask("pair", {5, 70});
  stalled.inquiries.answer();
  EXPECT_FALSE(stalled.board->compare({5, 70}).has_value());
  ahead.inquiries.answer();
  const auto finding = stalled.board->compare({5, 70});
  ASSERT_TRUE(finding.has_value());
  EXPECT_EQ(finding->rank, 1);
  EXPECT_EQ(finding->called.fingerprint, 77u);
}

TEST(Inquiries, WhoAgreesOrDoesNotRememberSaysNothing) {
  auto job = std::make_shared<MapStore>(), group = std::make_shared<MapStore>();
  Rank stalled(job, group, 0), ahead(job, group, 1);
  ahead.board->record({5, 70});
  for (std::uint64_t sequence = 6; sequence < 6 + 512; ++sequence) ahead.board->record({sequence, 1});
  stalled.inquiries.ask("pair", {5, 71});    // forgotten
  stalled.inquiries.ask("pair", {517, 1});   // the same call
  stalled.inquiries.ask("other", {517, 2});  // of a group that it has not
  ahead.inquiries.answer();
  EXPECT_FALSE(stalled.board->compare({5, 71}).has_value());
  EXPECT_FALSE(stalled.board->compare({517, 2}).has_value());
}

}  // namespace
}  // namespace altorch
