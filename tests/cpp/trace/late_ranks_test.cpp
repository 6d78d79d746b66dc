// SPDX-License-Identifier: BSD-3-Clause
#include "trace/late_ranks.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "support/map_store.h"
#include "support/says.h"
#include "trace/ask_process.h"
#include "trace/trace_board.h"
#include "trace/trace_socket.h"

namespace altorch {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

struct LateGroup : TraceSource {
  GroupReport report() const override { return group; }
  const FlightRecorder* recorder() const override { return nullptr; }
  GroupReport group;
};

// A process that does so until it is killed.
struct Child {
  template <typename Body>
  explicit Child(Body&& body) : pid(fork()) {
    if (pid == 0) {
      body();
      while (true) pause();
    }
  }
  ~Child() {
    kill(pid, SIGKILL);
    waitpid(pid, nullptr, 0);
  }
  const pid_t pid;
};

LivenessSettings watched(std::map<int, ProcessId> members) {
  LivenessSettings settings;
  settings.store = std::make_shared<MapStore>();
  settings.members = std::move(members);
  settings.address = settings.master = "127.0.0.1";
  return settings;
}

TEST(LateRanks, SayWhatTheyAreAt) {
  static auto* const board = new TraceBoard();  // never destroyed
  LateGroup source;                             // of this process, which stands for another one
  source.group.key = "0/abc";
  source.group.global_ranks = {0};
  source.group.closed = "it was destroyed";
  board->add(source);
  EXPECT_EQ(ask_process(getpid(), "late in 0/abc", seconds(20)), "takes no calls: it was destroyed");
  EXPECT_EQ(ask_process(getpid(), "late in 0/other", seconds(20)), "not in this group any more");

  const Child stopped([] {});
  kill(stopped.pid, SIGSTOP);
  waitpid(stopped.pid, nullptr, WUNTRACED);
  const ProcessId own = ProcessId::own();
  JobWatch watch("w", watched({{0, own},
                               {3, {own.node, getpid()}},
                               {4, {"elsewhere/p", stopped.pid}},
                               {5, {own.node, stopped.pid}}}));
  const std::vector<int> late = {1, 2, 3}, global_ranks = {0, 3, 4, 5};
  EXPECT_EQ(text_of_late_ranks(watch, "0/abc", late, global_ranks),
            "; rank 1: takes no calls: it was destroyed; rank 3: its process " + std::to_string(stopped.pid) +
                " is stopped");
  board->remove(source);
}

// This process is both ranks, as far as that goes.
TEST(LateRanks, SayItOnOtherNodesToo) {
  static auto* const board = new TraceBoard();  // never destroyed
  LateGroup source;
  source.group.key = "0/abc";
  source.group.closed = "it was destroyed";
  board->add(source);
  const ProcessId own = ProcessId::own();
  LivenessSettings settings = watched({{3, own}, {4, {"elsewhere/p", own.pid}}});
  settings.rank = 3;
  JobWatch here("far/" + std::to_string(own.pid), settings);
  settings.rank = 4;
  JobWatch there("far/" + std::to_string(own.pid), settings);
  const std::vector<int> late = {1}, global_ranks = {3, 4};
  std::string words;
  for (int i = 0; i < 20 && words.empty(); ++i) {  // until the two are linked
    here.silent.remove("elsewhere/p");
    words = text_of_late_ranks(here, "0/abc", late, global_ranks);
  }
  EXPECT_EQ(words, "; rank 1: takes no calls: it was destroyed");
  for (int i = 0; i < 3; ++i) EXPECT_EQ(text_of_late_ranks(here, "0/abc", late, global_ranks), words);
  EXPECT_EQ(text_of_late_ranks(there, "0/abc", {{0}}, global_ranks),
            "; rank 0: takes no calls: it was destroyed");
  board->remove(source);
}

TEST(LateRanks, AreInAnotherGroup) {
  ProcessReport report;
  report.now_ns = 5'000'000'000;
  GroupReport here{.name = "a", .key = "0/a"}, other{.name = "b", .key = "0/b"};
  here.recorded_as = other.recorded_as = 1;
  FlightEntry call;
  call.kind = OpKind::kAllReduce;
  call.sequence = 4;
  call.state = FlightState::kStarted;
  call.issued_ns = 2'000'000'000;
  call.timeout_ms = 10'000;
  other.under_way = {call};
  other.calls_under_way = 1;
  report.groups = {other, here};
  const std::string text = late_answer(report, "0/a");
  EXPECT_TRUE(says(text, "in no call; in group 'b' it is in all_reduce #4")) << text;
  EXPECT_TRUE(says(text, "for 3.0 s")) << text;
  EXPECT_TRUE(says(late_answer(report, "0/b"), "in all_reduce #4")) << late_answer(report, "0/b");
  EXPECT_EQ(late_answer(report, "0/b").find("in group"), std::string::npos);
  EXPECT_EQ(text.find("program"), std::string::npos);
  report.place = "train.py:88 in load";
  for (const char* key : {"0/a", "0/b"})
    EXPECT_TRUE(late_answer(report, key).ends_with("; its program is at train.py:88 in load"));
}

TEST(LateRanks, MayBeSilent) {
  const Child without([] {});
  EXPECT_EQ(ask_process(without.pid, "late in 0", seconds(5)), std::nullopt);
  const Child deaf(
      [] { new TraceSocket([](std::string_view) { return std::string(); }); });  // no thread serves it
  const auto began = std::chrono::steady_clock::now();
  for (int i = 0; i < 3; ++i) EXPECT_EQ(ask_process(deaf.pid, "late in 0", milliseconds(100)), std::nullopt);
  EXPECT_LT(std::chrono::steady_clock::now() - began, seconds(5));
  const ProcessId own = ProcessId::own();
  JobWatch watch("w", watched({{0, own}, {1, {own.node, without.pid}}, {2, {own.node, deaf.pid}}}));
  const std::vector<int> late = {1, 2}, global_ranks = {0, 1, 2};
  EXPECT_EQ(text_of_late_ranks(watch, "0", late, global_ranks), "");
}

}  // namespace
}  // namespace altorch
