#include "observe/trace/late_ranks.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <thread>

#include "observe/trace/trace_board.h"
#include "observe/trace/trace_socket.h"
#include "support/map_store.h"
#include "support/says.h"

namespace altorch {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

struct OneGroup : TraceSource {
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

std::optional<std::string> ask_until_there(long pid, const std::string& question) {
  for (int i = 0; i < 1000; ++i) {
    if (auto answer = ask_process(pid, question, seconds(20))) return answer;
    std::this_thread::sleep_for(milliseconds(10));
  }
  return std::nullopt;
}

TEST(LateRanks, SayWhatTheyAreAt) {
  const Child child([] {
    static OneGroup source;  // of a process that ends without destructors
    source.group.key = "0/abc";
    source.group.global_ranks = {0};  // `altorch trace` sees this process, too
    source.group.closed = "it was destroyed";
    (new TraceBoard())->add(source);  // its own; that of its parent does nothing here
  });
  const auto answer = ask_until_there(child.pid, "late in 0/abc");
  EXPECT_EQ(answer, "takes no calls: it was destroyed");
  EXPECT_EQ(ask_process(child.pid, "late in 0/other", seconds(20)), "not in this group any more");

  const ProcessId own = ProcessId::own();
  JobWatch watch("w", watched({{0, own}, {3, {own.home, child.pid}}, {4, {"elsewhere/p", child.pid}}}));
  const std::vector<int> late = {1, 2}, global_ranks = {0, 3, 4};
  EXPECT_EQ(words_of_late_ranks(watch, "0/abc", late, global_ranks),
            "; rank 1: takes no calls: it was destroyed");
  kill(child.pid, SIGSTOP);
  for (int i = 0; i < 1000; ++i) {
    if (says(words_of_late_ranks(watch, "0/abc", late, global_ranks), "is stopped")) break;
    std::this_thread::sleep_for(milliseconds(10));
  }
  EXPECT_EQ(words_of_late_ranks(watch, "0/abc", late, global_ranks),
            "; rank 1: its process " + std::to_string(child.pid) + " is stopped");
  kill(child.pid, SIGCONT);
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
}

TEST(LateRanks, MayBeSilent) {
  const Child without([] {});
  EXPECT_EQ(ask_process(without.pid, "late in 0", seconds(5)), std::nullopt);
  const Child deaf(
      [] { new TraceSocket([](std::string_view) { return std::string(); }); });  // nobody serves it
  const auto began = std::chrono::steady_clock::now();
  for (int i = 0; i < 3; ++i) EXPECT_EQ(ask_process(deaf.pid, "late in 0", milliseconds(100)), std::nullopt);
  EXPECT_LT(std::chrono::steady_clock::now() - began, seconds(5));
  const ProcessId own = ProcessId::own();
  JobWatch watch("w", watched({{0, own}, {1, {own.home, without.pid}}, {2, {own.home, deaf.pid}}}));
  const std::vector<int> late = {1, 2}, global_ranks = {0, 1, 2};
  EXPECT_EQ(words_of_late_ranks(watch, "0", late, global_ranks), "");
}

}  // namespace
}  // namespace altorch
