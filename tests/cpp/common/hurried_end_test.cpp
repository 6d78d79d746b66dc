#include "common/hurried_end.h"

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

// A handler that was registered before stands for the destructors of global objects.
void ends_hurriedly() {
  std::atexit([] { std::abort(); });
  end_without_destructors(false);
  end_without_destructors(true);
  std::fputs("not flushed yet", stdout);
}
void ends_beside_one_that_is_left_behind() {
  std::atexit([] { std::abort(); });
  end_without_destructors(false);
  new LeftBehind();  // after that
}
void ends_in_peace() {
  std::atexit([] {
    std::fputs("a handler", stdout);
    std::fflush(stdout);
    _exit(7);  // what the tests before have left is no leak of this one
  });
  end_without_destructors(false);
}
// As one that asks its user for a line.
void ends_beside_one_that_reads() {
  static int ends[2];
  if (pipe(ends) == 0) dup2(ends[0], 0);
  std::thread([] { std::getchar(); }).detach();
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  end_without_destructors(true);
  std::fputs("flushed", stdout);
}

TEST(HurriedEnd, SkipsWhatWasRegisteredBeforeAndKeepsOutputAndExitCode) {
  EXPECT_EQ(outcome_of(ends_hurriedly), std::pair(std::string("not flushed yet"), 7));
}

TEST(HurriedEnd, LooksAtTheEndWhoIsLeftBehind) {
  EXPECT_EQ(outcome_of(ends_beside_one_that_is_left_behind), std::pair(std::string(), 7));
  EXPECT_EQ(outcome_of(ends_in_peace), std::pair(std::string("a handler"), 7));
}

TEST(HurriedEnd, WaitsForNobodyWhoReads) {
  EXPECT_EQ(outcome_of(ends_beside_one_that_reads), std::pair(std::string("flushed"), 7));
}

TEST(HurriedEnd, CountsWhoIsLeftBehind) {
  const int before = LeftBehind::number();
  auto one = std::make_shared<LeftBehind>();
  EXPECT_EQ(LeftBehind::number(), before + 1);
  one.reset();
  EXPECT_EQ(LeftBehind::number(), before);
}

}  // namespace
}  // namespace altorch
