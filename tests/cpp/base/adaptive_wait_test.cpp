// SPDX-License-Identifier: BSD-3-Clause
#include "base/adaptive_wait.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

namespace altorch {
namespace {

double cpu_seconds() {
  rusage usage{};
  getrusage(RUSAGE_THREAD, &usage);
  return static_cast<double>(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
         1e-6 * static_cast<double>(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec);
}

TEST(AdaptiveWait, LongWaitsLeaveTheCoreToOthers) {
  const auto began = AdaptiveWait::Clock::now();
  const double cpu = cpu_seconds();
  AdaptiveWait wait;
  while (AdaptiveWait::Clock::now() - began < std::chrono::milliseconds(400)) wait.pause();
  EXPECT_LT(cpu_seconds() - cpu, 0.2);
  EXPECT_GT(wait.waited(), std::chrono::milliseconds(300));
  wait.reset();
  EXPECT_EQ(wait.waited(), AdaptiveWait::Clock::duration::zero());
}

// A number that no thread raises.
struct Silence {
  WaitTarget::Number number{0};
  WaitTarget::Sleepers sleepers{0};
  WaitTarget wait_target(bool crowded) { return {number, sleepers, 1, crowded}; }
};

TEST(AdaptiveWait, LongWaitsDozeWhereTheyCanBeEnded) {
  AdaptiveWait wait;
  Silence silence;
  int sleeps = 0;
  const auto began = AdaptiveWait::Clock::now();
  while (sleeps < 3 && AdaptiveWait::Clock::now() - began < std::chrono::seconds(10)) {
    wait.pause(std::chrono::milliseconds(1), silence.wait_target(false), [&](std::chrono::microseconds most) {
      EXPECT_GE(most, AdaptiveWait::kLongestSleep);
      EXPECT_LE(most, AdaptiveWait::kLongestWakeableSleep);
      return ++sleeps > 1;  // the first can't
    });
  }
  EXPECT_EQ(sleeps, 3);
}

TEST(AdaptiveWait, CrowdsDozeAtOnce) {
  EXPECT_FALSE(AdaptiveWait::is_crowd(4, 2));
  EXPECT_TRUE(AdaptiveWait::is_crowd(5, 2));
  EXPECT_FALSE(AdaptiveWait::is_crowd(5, std::nullopt)) << "unknown";
  AdaptiveWait wait;
  Silence silence;
  int sleeps = 0;
  for (int pauses = 0; pauses < 3; ++pauses) {
    wait.pause(std::chrono::seconds(1), silence.wait_target(true),
               [&](std::chrono::microseconds) { return ++sleeps > 0; });
  }
  EXPECT_EQ(sleeps, 3);
  EXPECT_GT(wait.waited(), AdaptiveWait::Clock::duration::zero());
}

TEST(Driven, SleepsForTheOneThingThatEverythingWaitsFor) {
  Silence one, other;
  Driven found;
  EXPECT_FALSE(found.wait_target());
  found.pends(AdaptiveWait::kSpinBudget, one.wait_target(false));
  found.pends(AdaptiveWait::kSpinBudget, one.wait_target(false));
  EXPECT_TRUE(found.wait_target());
  found.pends(AdaptiveWait::kSpinBudget, other.wait_target(false));
  EXPECT_FALSE(found.wait_target());
  found.pends(AdaptiveWait::kSpinBudget, other.wait_target(false));
  EXPECT_FALSE(found.wait_target()) << "the first is still there";
}

}  // namespace
}  // namespace altorch
