// SPDX-License-Identifier: BSD-3-Clause
#include "health/link_messages.h"

#include <gtest/gtest.h>

namespace altorch {
namespace {

TEST(LinkMessages, ComeInPieces) {
  LinkMessages messages;
  LinkNews heard;
  for (const char byte :
       "Q1 a\nQ2 b\n" + LinkMessages::death_line(17) + "\nDx;\nD;\nD\nD99999999999;\nQ3 c") {
    const auto some = messages.hear({&byte, 1});
    ASSERT_FALSE(some.ended);
    heard.questions.insert(heard.questions.end(), some.questions.begin(), some.questions.end());
    heard.deaths.insert(heard.deaths.end(), some.deaths.begin(), some.deaths.end());
  }
  EXPECT_EQ(heard.questions, (std::vector<LateQuestion>{{1, "a"}, {2, "b"}}));
  EXPECT_EQ(heard.deaths, std::vector{17});
  EXPECT_EQ(messages.hear("\n").questions.size(), 1U);
}

TEST(LinkMessages, EndWithAGoodbyeOrNonsense) {
  EXPECT_TRUE(LinkMessages().hear(LinkMessages::kGoodbye).ended);
  EXPECT_TRUE(LinkMessages().hear("G").ended);
  EXPECT_TRUE(LinkMessages().hear("hello").ended);
  EXPECT_TRUE(LinkMessages().hear("Q" + std::string(5000, '1')).ended);
  LinkMessages torn;  // of which the buffer took a part only
  EXPECT_FALSE(torn.hear("Q1 ").ended);
  EXPECT_TRUE(torn.hear(LinkMessages::kGoodbye).ended);
}

TEST(LinkMessages, AreToldApartAfterATornLine) {
  LinkMessages messages;
  const LateQuestion long_one{1, std::string(200, 'k')};
  EXPECT_FALSE(messages.hear(long_one.line().substr(0, 150)).ended);
  EXPECT_FALSE(messages.hear(long_one.line()).ended);
  EXPECT_EQ(messages.hear(long_one.line()).questions, std::vector{long_one});
}

TEST(LinkMessages, ADeathIsToldBeforeTheGoodbyeOrNotAtAll) {
  const LinkNews news =
      LinkMessages().hear(LinkMessages::death_line(12) + std::string(LinkMessages::kGoodbye));
  EXPECT_TRUE(news.ended);
  EXPECT_EQ(news.deaths, std::vector{12});
  LinkMessages torn;
  EXPECT_FALSE(torn.hear("D1").ended);
  EXPECT_TRUE(torn.hear(LinkMessages::kGoodbye).deaths.empty()) << "it may have begun the number 12";
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
