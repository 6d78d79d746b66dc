// SPDX-License-Identifier: BSD-3-Clause
#include "trace/late_answers.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <thread>

#include "support/map_store.h"

namespace altorch {
namespace {

const LateQuestion kQuestion{3, "0/abc"};

std::optional<LateAnswer> answer_of(MapStore& store, std::int64_t asked) {
  for (int i = 0; i < 10000; ++i) {
    const auto answer = LateAnswer::from(store.try_get(LateAnswer::key(kQuestion)));
    if (answer.asked >= asked) return answer;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return std::nullopt;
}

struct StoppedProcess {
  StoppedProcess() : pid(fork()) {
    if (pid == 0) {
      while (true) pause();
    }
    kill(pid, SIGSTOP);
    waitpid(pid, nullptr, WUNTRACED);
  }
  ~StoppedProcess() {
    kill(pid, SIGKILL);
    waitpid(pid, nullptr, 0);
  }
  const pid_t pid;
};

TEST(LateAnswers, AreForAllWhoHaveAsked) {
  const StoppedProcess stopped;
  const auto store = std::make_shared<MapStore>();
  const auto answers = std::make_shared<LateAnswers>(store);
  for (int round = 1; round <= 3; ++round) {
    store->add(LateAnswer::count_key(kQuestion), 5);
    for (int i = 0; i < 5; ++i) answers->find(kQuestion, stopped.pid);
    const auto answer = answer_of(*store, 5 * round);
    ASSERT_TRUE(answer.has_value());
    EXPECT_EQ(answer->asked, 5 * round);
    EXPECT_EQ(answer->text, "its process " + std::to_string(stopped.pid) + " is stopped");
  }
}

TEST(LateAnswers, AreEmptyWhereTheProcessSaysNothing) {
  const auto store = std::make_shared<MapStore>();
  store->add(LateAnswer::count_key(kQuestion), 1);
  std::make_shared<LateAnswers>(store)->find(kQuestion, 1 << 23);
  const auto answer = answer_of(*store, 1);
  ASSERT_TRUE(answer.has_value());
  EXPECT_EQ(answer->text, "");
}

TEST(LateAnswers, AreNoneWhereNoRankHasAsked) {
  const auto store = std::make_shared<MapStore>();
  std::make_shared<LateAnswers>(store)->find(kQuestion, getpid());
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  EXPECT_FALSE(store->try_get(LateAnswer::key(kQuestion)).has_value());
}

TEST(LateAnswers, AsTheyStandInTheStore) {
  EXPECT_EQ(LateAnswer::from("7 in no call").asked, 7);
  EXPECT_EQ(LateAnswer::from((LateAnswer{7, "in no call"}.encode())).text, "in no call");
  EXPECT_EQ(LateAnswer::from("7 two\nlines").text, "two?lines");
  EXPECT_EQ(LateAnswer::from("7 \xFF").text, "?");
  EXPECT_EQ(LateAnswer::from("7 ").text, "");
  EXPECT_LT(LateAnswer::from("7 " + std::string(100'000, 'x')).text.size(), 5000U);
  for (const char* text : {"", "7", " 7", "-1 x", "x y", "99999999999999999999 x", "0 x"}) {
    EXPECT_EQ(LateAnswer::from(text).asked, 0) << text;
    EXPECT_EQ(LateAnswer::from(text).text, "") << text;
  }
  EXPECT_EQ(LateAnswer::from(std::nullopt).asked, 0);
}

}  // namespace
}  // namespace altorch
