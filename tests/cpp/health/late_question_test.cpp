// SPDX-License-Identifier: BSD-3-Clause
#include "health/late_question.h"

#include <gtest/gtest.h>

namespace altorch {
namespace {

TEST(LateQuestion, GoesAsALine) {
  const LateQuestion question{12, "altorch/0/a b"};
  EXPECT_EQ(question.line(), "Q12 altorch/0/a b\n");
  EXPECT_EQ(LateQuestion::from("Q12 altorch/0/a b"), question);
}

TEST(LateQuestion, IsNothingElse) {
  const std::string longest(LateQuestion::kLongestLine, 'k');
  for (const std::string& text : {std::string(), std::string("Q"), std::string("Q1"), std::string("Q1 "),
                                  std::string("Q 1"), std::string("1 k"), std::string("Qx k"),
                                  std::string("Q99999999999 k"), std::string("Q1 k\x01"), "Q1 " + longest})
    EXPECT_FALSE(LateQuestion::from(text).has_value()) << text;
  EXPECT_EQ((LateQuestion{1, ""}.line()), "");
  EXPECT_EQ((LateQuestion{1, "two\nlines"}.line()), "");
  EXPECT_EQ((LateQuestion{1, longest}.line()), "");
}

}  // namespace
}  // namespace altorch
