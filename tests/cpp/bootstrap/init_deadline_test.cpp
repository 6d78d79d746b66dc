// SPDX-License-Identifier: BSD-3-Clause
#include "bootstrap/init_deadline.h"

#include <gtest/gtest.h>
#include <unistd.h>

namespace altorch {
namespace {

// Run anew, for it starts a thread: under ThreadSanitizer a forked child may not, where a thread of
// its parent had the same address.
TEST(InitDeadlineDeathTest, EndsAProcessThatIsStuck) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto body = [] {
    InitDeadline deadline;
    deadline.begin(std::chrono::milliseconds(20));
    sleep(20);
    _exit(0);
  };
  EXPECT_EXIT(body(), testing::ExitedWithCode(1), "MPI_Init did not return");
}

TEST(InitDeadline, LeavesOneThatIsInTime) {
  {
    InitDeadline deadline;
    deadline.begin(std::chrono::milliseconds(20));
  }
  usleep(40'000);
  SUCCEED();
}

}  // namespace
}  // namespace altorch
