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

TEST(LinkMessages, ComeInPieces) {
  LinkMessages messages;
  std::vector<LateQuestion> heard;
  for (const char byte : std::string("Q1 a\nQ2 b\n\nQ3 c")) {
    const auto some = messages.hear({&byte, 1});
    ASSERT_TRUE(some.has_value());
    heard.insert(heard.end(), some->begin(), some->end());
  }
  EXPECT_EQ(heard, (std::vector<LateQuestion>{{1, "a"}, {2, "b"}}));
  EXPECT_EQ(messages.hear("\n")->size(), 1U);
}

TEST(LinkMessages, EndWithAGoodbyeOrNonsense) {
  EXPECT_FALSE(LinkMessages().hear(LinkMessages::kGoodbye).has_value());
  EXPECT_FALSE(LinkMessages().hear("G").has_value());
  EXPECT_FALSE(LinkMessages().hear("hello").has_value());
  EXPECT_FALSE(LinkMessages().hear("Q" + std::string(5000, '1')).has_value());
  LinkMessages torn;  // of which the buffer took a part only
  EXPECT_TRUE(torn.hear("Q1 ").has_value());
  EXPECT_FALSE(torn.hear(LinkMessages::kGoodbye).has_value());
}

TEST(LinkMessages, AreToldApartAfterATornLine) {
  LinkMessages messages;
  const LateQuestion long_one{1, std::string(200, 'k')};
  EXPECT_TRUE(messages.hear(long_one.line().substr(0, 150)).has_value());
  EXPECT_TRUE(messages.hear(long_one.line()).has_value());
  EXPECT_EQ(messages.hear(long_one.line()), std::vector{long_one});
}

TEST(LinkMessages, AreFewASecond) {
  LinkMessages messages;
  int asked = 0;
  for (int i = 0; i < 1000; ++i) asked += messages.may_ask();
  EXPECT_GE(asked, 1);
  EXPECT_LE(asked, 64);
}

}  // namespace
}  // namespace altorch
