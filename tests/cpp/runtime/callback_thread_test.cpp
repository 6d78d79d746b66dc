// SPDX-License-Identifier: BSD-3-Clause
#include "runtime/callback_thread.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <future>
#include <memory>
#include <thread>
#include <vector>

namespace altorch {
namespace {

TEST(CallbackThread, RunsWhatIsPushedInOrder) {
  std::vector<int> seen;
  std::promise<void> done;
  for (int i = 0; i < 1000; ++i) {
    CallbackThread::instance().push([&, i] {
      seen.push_back(i);
      if (i == 999) done.set_value();
    });
  }
  ASSERT_EQ(done.get_future().wait_for(std::chrono::seconds(20)), std::future_status::ready);
  for (int i = 0; i < 1000; ++i) ASSERT_EQ(seen[static_cast<std::size_t>(i)], i);
}

// In a process of its own, for there it is over.
#if defined(EXPECT_EXIT)
TEST(CallbackThreadDeathTest, FinishesWhatWasPushedAndBeginsNothingMore) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto end = [] {
    std::atomic<int> done{0}, later{0};
    for (int i = 0; i < 20; ++i) {
      CallbackThread::instance().push([&] {
        std::this_thread::sleep_for(std::chrono::milliseconds(5));
        ++done;
      });
    }
    CallbackThread::finish(std::chrono::seconds(20));
    const int in_time = done;
    CallbackThread::instance().push([&] { ++later; });
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    _exit(in_time == 20 && later == 0 ? 0 : 1);
  };
  EXPECT_EXIT(end(), testing::ExitedWithCode(0), "");
}
#else
TEST(CallbackThreadDeathTest, FinishesWhatWasPushedAndBeginsNothingMore) {
  GTEST_SKIP() << "only GoogleTest starts processes for tests";
}
#endif

// Each waits for what the next one does, which stands behind it.
TEST(CallbackThread, GoesOnBehindCallbacksThatWaitForLaterOnes) {
  constexpr int kDeep = 8;
  std::vector<std::promise<void>> promises(kDeep + 1);
  std::atomic<int> finished{0};
  for (std::size_t i = 0; i < kDeep; ++i) {
    CallbackThread::instance().push([&, i] {
      promises[i + 1].get_future().wait();
      promises[i].set_value();
      ++finished;
    });
  }
  CallbackThread::instance().push([&] { promises[kDeep].set_value(); });
  EXPECT_EQ(promises[0].get_future().wait_for(std::chrono::seconds(20)), std::future_status::ready);
  for (int i = 0; i < 2000 && finished < kDeep; ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  EXPECT_EQ(finished.load(), kDeep);
}

// Both come before the idle thread has woken, most often: it takes one, and no other thread is
// idle.
TEST(CallbackThread, GoesOnBehindOneThatWaitsForTheOnlyOtherOne) {
  for (int round = 0; round < 2; ++round) {
    std::this_thread::sleep_for(std::chrono::milliseconds(2500));  // by then only one thread is left
    const auto second = std::make_shared<std::promise<void>>(),
               first = std::make_shared<std::promise<void>>();
    std::atomic<int> ready{0};
    const auto push = [&](std::function<void()> work) {
      for (++ready; ready < 2;) {
      }
      CallbackThread::instance().push(std::move(work));
    };
    std::thread other([&] { push([=] { second->set_value(); }); });
    push([=] {
      second->get_future().wait();
      first->set_value();
    });
    other.join();
    ASSERT_EQ(first->get_future().wait_for(std::chrono::seconds(5)), std::future_status::ready) << round;
  }
}

TEST(CallbackThread, SurvivesWhatCallbacksThrow) {
  std::promise<void> done;
  CallbackThread::instance().push([] { throw std::runtime_error("on purpose"); });
  CallbackThread::instance().push([&] { done.set_value(); });
  EXPECT_EQ(done.get_future().wait_for(std::chrono::seconds(20)), std::future_status::ready);
}

}  // namespace
}  // namespace altorch
