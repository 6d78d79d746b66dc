// SPDX-License-Identifier: BSD-3-Clause
#include "bootstrap/frames.h"

#include <gtest/gtest.h>
#include <unistd.h>

namespace altorch {
namespace {

class Frames : public ::testing::Test {
 protected:
  Frames() { EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends_), 0); }
  ~Frames() override {
    for (const int end : ends_) close(end);
  }
  int ends_[2];
};

TEST_F(Frames, ComeAsTheyWereSent) {
  ASSERT_TRUE(send_frame(ends_[0], 'F', with_number(7, "data")));
  const auto frame = receive_frame(ends_[1]);
  ASSERT_TRUE(frame.has_value());
  EXPECT_EQ(frame->kind, 'F');
  const auto body = numbered_body(*frame);
  ASSERT_TRUE(body.has_value());
  EXPECT_EQ(body->number, 7u);
  EXPECT_EQ(body->data, "data");
}

TEST_F(Frames, WithoutANumberHaveNone) { EXPECT_FALSE(numbered_body({'F', "abc"}).has_value()); }

// 4 GiB, of which nothing comes.
TEST_F(Frames, TakeNoMemoryForWhatDoesNotCome) {
  const char head[] = {'F', '\xff', '\xff', '\xff', '\xff', 'a'};
  ASSERT_EQ(send(ends_[0], head, sizeof head, MSG_NOSIGNAL), static_cast<ssize_t>(sizeof head));
  shutdown(ends_[0], SHUT_WR);
  EXPECT_FALSE(receive_frame(ends_[1]).has_value());
}

}  // namespace
}  // namespace altorch
