#include "common/hurried_end.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>

namespace altorch {
namespace {

// What a child writes to standard output, and its exit code.
std::pair<std::string, int> outcome_of(void (*body)()) {
  int ends[2];
  if (pipe(ends) != 0) return {"no pipe", -1};
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
  end_without_destructors();
  end_without_destructors();
  std::fputs("not flushed yet", stdout);
}

TEST(HurriedEnd, SkipsWhatWasRegisteredBeforeAndKeepsOutputAndExitCode) {
  EXPECT_EQ(outcome_of(ends_hurriedly), std::pair(std::string("not flushed yet"), 7));
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
