// SPDX-License-Identifier: BSD-3-Clause
#include "bootstrap/signals.h"

#include <gtest/gtest.h>

namespace altorch {
namespace {

void ours(int) {}
void theirs(int) {}

TEST(SignalKeeper, GivesBackWhatWasTaken) {
  struct sigaction action = {};
  action.sa_handler = ours;
  sigaction(SIGUSR1, &action, nullptr);
  signal(SIGHUP, SIG_DFL);
  {
    SignalKeeper keeper;
    signal(SIGUSR1, theirs);
    signal(SIGHUP, theirs);
  }
  sigaction(SIGUSR1, nullptr, &action);
  EXPECT_TRUE(action.sa_handler == ours);
  sigaction(SIGHUP, nullptr, &action);
  EXPECT_TRUE(action.sa_handler == SIG_DFL);
  signal(SIGUSR1, SIG_DFL);
}

}  // namespace
}  // namespace altorch
