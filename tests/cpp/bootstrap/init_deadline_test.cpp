// SPDX-License-Identifier: BSD-3-Clause
#include "bootstrap/init_deadline.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

namespace altorch {
namespace {

TEST(InitDeadline, EndsAProcessThatIsStuck) {
  const pid_t child = fork();
  if (child == 0) {
    close(STDERR_FILENO);
    InitDeadline deadline;
    deadline.begin(std::chrono::milliseconds(20));
    sleep(20);
    _exit(0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 1);
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
