// SPDX-License-Identifier: BSD-3-Clause
#include "health/stuck_calls.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstddef>
#include <new>
#include <thread>

namespace altorch {
namespace {

using namespace std::chrono_literals;  // NOLINT

struct Watch : KnownDeaths {
  bool is_dead(int rank) const override { return rank == 7; }
};
const Watch watch, another;

// Looks so often, kBetweenLooks apart; whether one of them has found a thread stuck.
bool look(StuckCalls& calls, StuckCalls::Clock::time_point& now, int times) {
  bool stuck = false;
  for (int i = 0; i < times; ++i) stuck |= calls.look(watch, now += StuckCalls::kBetweenLooks);
  return stuck;
}

TEST(StuckCalls, AreThoseOfOneCallAtManyLooks) {
  StuckCalls calls;
  auto now = StuckCalls::Clock::now();
  EXPECT_FALSE(look(calls, now, 2 * StuckCalls::kLooks)) << "no thread is in a call";
  const ForeignCall call(true);
  EXPECT_FALSE(look(calls, now, StuckCalls::kLooks - 1));
  EXPECT_FALSE(calls.look(watch, now + 1ms)) << "too soon to count";
  EXPECT_TRUE(look(calls, now, 1));
}

// MPI_Isend may wait for a peer that is only late.
TEST(StuckCalls, AreThoseWhosePeerIsDead) {
  for (const int peer : {6, 7}) {
    StuckCalls calls;
    auto now = StuckCalls::Clock::now();
    const ForeignCall call(true, {&watch, peer});
    EXPECT_EQ(look(calls, now, StuckCalls::kLooks), watch.is_dead(peer));
  }
}

// Groups of two stores may number their ranks alike.
TEST(StuckCalls, AreThoseOfOneWatch) {
  StuckCalls calls;
  auto now = StuckCalls::Clock::now();
  const ForeignCall call(true, {&another, 7});
  EXPECT_FALSE(look(calls, now, 2 * StuckCalls::kLooks));
}

TEST(StuckCalls, AreNotManyCallsOneAfterTheOther) {
  StuckCalls calls;
  auto now = StuckCalls::Clock::now();
  for (int i = 0; i < 2 * StuckCalls::kLooks; ++i) {
    const ForeignCall call(true);
    EXPECT_FALSE(look(calls, now, 1));
  }
}

// A process that was stopped has made no looks, and time alone proves nothing.
TEST(StuckCalls, AreNotCountedByTime) {
  StuckCalls calls;
  const auto now = StuckCalls::Clock::now();
  const ForeignCall call(true);
  EXPECT_FALSE(calls.look(watch, now));
  EXPECT_FALSE(calls.look(watch, now + 24h));
}

TEST(StuckCalls, DoNotCountUnwatchedCalls) {
  const ForeignCall call(false);
  EXPECT_TRUE(ForeignCall::all().empty());
}

// Of another thread, also one that has ended in a call, and of none in a forked child.
TEST(StuckCalls, AreOfThreadsThatLive) {
  alignas(ForeignCall) static std::byte memory[sizeof(ForeignCall)];
  std::atomic<int> step{0};
  std::thread other([&] {
    new (memory) ForeignCall(true);
    for (step = 1; step != 2;) std::this_thread::yield();
  });
  while (step != 1) std::this_thread::yield();
  EXPECT_EQ(ForeignCall::all().size(), 1u);
  const pid_t child = fork();
  if (child == 0) _exit(ForeignCall::all().empty() ? 0 : 1);
  int status = -1;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0) << "the child has taken its parent's thread for its own";
  step = 2;
  other.join();
  EXPECT_TRUE(ForeignCall::all().empty());
}

TEST(StuckCalls, EndTheProcessAndSayWhy) {
  EXPECT_EXIT(end_stuck_process(2, "global rank 3 was lost (process 6 has ended)"),
              testing::ExitedWithCode(1),
              "global rank 2 has not returned from a call of MPI for 10 s, since global rank 3 was lost");
}

}  // namespace
}  // namespace altorch
