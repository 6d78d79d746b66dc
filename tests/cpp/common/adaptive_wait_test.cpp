#include "common/adaptive_wait.h"

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

TEST(AdaptiveWait, LongWaitsDozeWhereTheyCanBeEnded) {
  AdaptiveWait wait;
  int dozes = 0;
  const auto began = AdaptiveWait::Clock::now();
  while (dozes < 3 && AdaptiveWait::Clock::now() - began < std::chrono::seconds(10)) {
    wait.pause(
        std::chrono::milliseconds(1),
        [&](std::chrono::microseconds most) {
          EXPECT_GE(most, AdaptiveWait::kLongestSleep);
          EXPECT_LE(most, AdaptiveWait::kLongestDoze);
          return ++dozes > 1;  // the first can't
        },
        false);
  }
  EXPECT_EQ(dozes, 3);
}

TEST(AdaptiveWait, CrowdsDozeAtOnce) {
  EXPECT_FALSE(AdaptiveWait::is_crowd(1));
  EXPECT_TRUE(AdaptiveWait::is_crowd(100'000));
  AdaptiveWait wait;
  int dozes = 0;
  for (int pauses = 0; pauses < 3; ++pauses) {
    wait.pause(
        std::chrono::seconds(1), [&](std::chrono::microseconds) { return ++dozes > 0; }, true);
  }
  EXPECT_EQ(dozes, 3);
  EXPECT_GT(wait.waited(), AdaptiveWait::Clock::duration::zero());
}

}  // namespace
}  // namespace altorch
