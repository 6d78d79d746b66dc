// SPDX-License-Identifier: BSD-3-Clause
#include "platform/native_thread.h"

#include <gtest/gtest.h>
#include <signal.h>

#include <atomic>
#include <thread>

#include "base/error.h"
#include "bootstrap/init_deadline.h"
#include "runtime/callback_thread.h"
#include "support/says.h"

namespace altorch {
namespace {

// As long as it lives, no thread starts.
class NoThreads {
 public:
  explicit NoThreads(int starts = 0) { fail_thread_starts_after(starts); }
  ~NoThreads() { fail_thread_starts_after(-1); }
};

TEST(NativeThread, NamesTheLimitsWhereItCannotBeStarted) {
  const NoThreads limit(1);
  NativeThread first("al-test", [] {});
  first.join();
  try {
    NativeThread second("al-test", [] { ADD_FAILURE() << "it runs"; });
    FAIL() << "it started";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kTransport);
    for (const char* part : {"al-test", "ulimit -u", "pids.max"})
      EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what();
  }
}

TEST(NativeThread, LetsGoOfItsBodyWhereItCannotBeStarted) {
  const auto owned = std::make_shared<int>(1);
  const NoThreads limit;
  EXPECT_THROW(NativeThread("al-test", [owned] {}), Error);
  EXPECT_EQ(owned.use_count(), 1);
}

TEST(InitDeadline, LeavesTheSignalsOfItsCallerAlone) {
  sigset_t before, after;
  pthread_sigmask(SIG_SETMASK, nullptr, &before);
  {
    const NoThreads limit;
    EXPECT_THROW(InitDeadline(), Error);
  }
  pthread_sigmask(SIG_SETMASK, nullptr, &after);
  EXPECT_EQ(sigismember(&before, SIGUSR1), sigismember(&after, SIGUSR1));
}

TEST(InitDeadline, EndsBeforeItBegins) { const InitDeadline deadline; }

// One callback waits for another that stands behind it, and no thread can take it over yet.
TEST(CallbackThread, GoesOnOnceThreadsCanBeStartedAgain) {
  struct State {
    std::atomic<bool> first_runs{false}, second_ran{false};
  };
  const auto state = std::make_shared<State>();  // the callbacks', too
  CallbackThread& callbacks = CallbackThread::instance();
  {
    const NoThreads limit;
    callbacks.push([state] {
      state->first_runs = true;
      while (!state->second_ran) std::this_thread::yield();
    });
    while (!state->first_runs) std::this_thread::yield();
    callbacks.push([state] { state->second_ran = true; });
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  callbacks.push([] {});
  for (int i = 0; i < 5000 && !state->second_ran; ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  EXPECT_TRUE(state->second_ran);
  state->second_ran = true;
}

}  // namespace
}  // namespace altorch
