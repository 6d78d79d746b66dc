// SPDX-License-Identifier: BSD-3-Clause
#include "rendezvous/agreement.h"

#include <gtest/gtest.h>

#include <cstdlib>

namespace altorch {
namespace {

TEST(Agreement, NamesTheSettingTheRanksAndBothValues) {
  const std::vector<Fields> ranks = {{"A=1", "B="}, {"A=1", "B=x"}, {"A=1", "B=x"}};
  const std::vector<int> names = {4, 5, 9};
  const auto error = disagreement(ranks, names);
  ASSERT_TRUE(error.has_value());
  EXPECT_EQ(error->kind(), ErrorKind::kMismatch);
  EXPECT_EQ(std::string(error->what()),
            "the ranks differ in B: not set on rank 4, 'x' on ranks 5, 9; make it the same on every rank");
  EXPECT_FALSE(disagreement({ranks[1], ranks[2]}, names).has_value());
}

TEST(Agreement, AVersionThatSaysMoreIsComparedAsFarAsItGoes) {
  const std::vector<int> names = {0, 1};
  EXPECT_NE(std::string(disagreement({{"version=1"}, {"version=2", "new=3"}}, names)->what()).find("version"),
            std::string::npos);
}

TEST(Agreement, HoldsWhatDecidesAboutAlgorithms) {
  setenv("ALTORCH_ROUTE", "all_reduce=ring", 1);
  std::string all;
  for (const std::string& field : settings_to_agree_on()) all += field + "\n";
  unsetenv("ALTORCH_ROUTE");
  EXPECT_NE(all.find("ALTORCH_ROUTE=all_reduce=ring\n"), std::string::npos) << all;
  EXPECT_NE(all.find("ALTORCH_SEGMENT_BYTES=1048576\n"), std::string::npos) << all;
  EXPECT_NE(all.find("ALTORCH_PINNED_BYTES="), std::string::npos) << all;
  EXPECT_EQ(all.find("ALTORCH_LOG_LEVEL"), std::string::npos) << all;
}

}  // namespace
}  // namespace altorch
