// SPDX-License-Identifier: BSD-3-Clause
#include "platform/fast_exit.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <thread>

namespace altorch {
namespace {

// What a child writes to standard output, and its exit code.
std::pair<std::string, int> outcome_of(void (*body)()) {
  int ends[2];
  if (pipe(ends) != 0) return {"no pipe", -1};
  std::fflush(nullptr);  // or the child would write it, too
  const pid_t child = fork();
  if (child == 0) {
    dup2(ends[1], 1);
    close(ends[0]);
    body();
    std::exit(7);
  }
  close(ends[1]);
  std::string text;
  char buffer[256];
  for (ssize_t got; (got = read(ends[0], buffer, sizeof buffer)) > 0;)
    text.append(buffer, static_cast<std::size_t>(got));
  close(ends[0]);
  int status = 0;
  waitpid(child, &status, 0);
  return {text, WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status)};
}

// The handler that is registered first stands for the destructors of global objects.
void exits_fast() {
  std::atexit([] { std::abort(); });
  end_without_destructors(false);
  end_without_destructors(true);
  std::fputs("not flushed yet", stdout);
}
void exits_beside_a_detached_thread() {
  std::atexit([] { std::abort(); });
  end_without_destructors(false);
  new DetachedThread();  // after end_without_destructors()
}
void exits_alone() {
  std::atexit([] {
    std::fputs("a handler", stdout);
    std::fflush(stdout);
    _exit(7);  // skips the search for leaks: earlier tests left some
  });
  end_without_destructors(false);
}
// A program that asks its user for a line.
void exits_beside_a_reader() {
  static int ends[2];
  if (pipe(ends) == 0) dup2(ends[0], 0);
  std::thread([] { std::getchar(); }).detach();
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  end_without_destructors(true);
  std::fputs("flushed", stdout);
}

TEST(FastExit, SkipsWhatWasRegisteredBeforeAndKeepsOutputAndExitCode) {
  EXPECT_EQ(outcome_of(exits_fast), std::pair(std::string("not flushed yet"), 7));
}

TEST(FastExit, CountsDetachedThreadsAtTheEnd) {
  EXPECT_EQ(outcome_of(exits_beside_a_detached_thread), std::pair(std::string(), 7));
  EXPECT_EQ(outcome_of(exits_alone), std::pair(std::string("a handler"), 7));
}

// Run anew, for it starts a thread: under ThreadSanitizer a forked child may not, where a thread of
// its parent had the same address.
TEST(FastExitDeathTest, DoesNotWaitForAThreadThatReads) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto body = [] {
    dup2(STDERR_FILENO, STDOUT_FILENO);
    exits_beside_a_reader();
    std::exit(7);
  };
  EXPECT_EXIT(body(), testing::ExitedWithCode(7), "flushed");
}

TEST(FastExit, CountsDetachedThreads) {
  const int before = DetachedThread::number();
  auto one = std::make_shared<DetachedThread>();
  EXPECT_EQ(DetachedThread::number(), before + 1);
  one.reset();
  EXPECT_EQ(DetachedThread::number(), before);
}

}  // namespace
}  // namespace altorch
