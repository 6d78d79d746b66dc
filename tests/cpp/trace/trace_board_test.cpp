// SPDX-License-Identifier: BSD-3-Clause
// Asking a process from outside: over its socket, and by SIGUSR1.
#include "trace/trace_board.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <optional>
#include <thread>

#include "platform/unix_socket.h"
#include "support/says.h"
#include "trace/trace_socket.h"

namespace altorch {
namespace {

using std::chrono::seconds;

struct OneGroup : TraceSource {
  explicit OneGroup(const std::string& name) { group.name = name; }
  GroupReport report() const override { return group; }
  const FlightRecorder* recorder() const override { return log ? &log->recorder() : nullptr; }
  GroupReport group;
  std::unique_ptr<FlightLog> log;
};

// The names of this process's sockets.
std::vector<std::string> own_sockets() {
  std::vector<std::string> names;
  std::ifstream table("/proc/net/unix");
  const std::string wanted = "@altorch-trace-" + std::to_string(getpid()) + "-";
  for (std::string line; std::getline(table, line);) {
    const auto at = line.find(wanted);
    if (at != std::string::npos) names.push_back(line.substr(at + 1));
  }
  return names;
}

int connect_to(const std::string& name) {
  const int made = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const AbstractAddress address(name);
  const timeval timeout{20, 0};
  setsockopt(made, SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof timeout);
  EXPECT_EQ(connect(made, address.get(), address.bytes()), 0);
  return made;
}

std::string read_all(int from) {
  std::string all;
  char bytes[4096];
  for (ssize_t count = 0; (count = read(from, bytes, sizeof bytes)) > 0;)
    all.append(bytes, static_cast<std::size_t>(count));
  return all;
}

std::string ask(const std::string& name, const std::string& question) {
  const int client = connect_to(name);
  send(client, question.data(), question.size(), MSG_NOSIGNAL);
  const std::string answer = read_all(client);
  close(client);
  return answer;
}

TEST(TraceBoard, AnswersFromTheFirstGroupToTheLast) {
  TraceBoard& board = TraceBoard::instance();
  ASSERT_TRUE(own_sockets().empty());
  OneGroup first("first"), second("second");
  board.add(first);
  board.add(second);
  const auto names = own_sockets();
  ASSERT_EQ(names.size(), 1u);
  std::string answer = ask(names[0], "report\n");
  EXPECT_TRUE(says(answer, R"("name": "first")") && says(answer, R"("name": "second")")) << answer;
  EXPECT_TRUE(says(ask(names[0], "nonsense\n"), "error"));
  board.remove(first);
  answer = ask(names[0], "report\n");
  EXPECT_TRUE(!says(answer, R"("name": "first")") && says(answer, R"("name": "second")")) << answer;
  board.remove(second);
  EXPECT_TRUE(own_sockets().empty());
}

TEST(TraceBoard, TellsWhichCallsAreUnderWay) {
  FlightRecorder recorder(16);
  OneGroup source("recorded");
  FlightGroup group;
  group.global_ranks = {0, 1};
  source.log = std::make_unique<FlightLog>(recorder, group);
  source.group.recorded_as = source.log->group();
  recorder.describe(source.log->group(), "a pair");
  const Call call{.kind = OpKind::kAllReduce, .dtype = DType::kFloat32, .count = 4};
  const auto at = [&](std::uint64_t number) { return ObservedCall{call, number, 0, number, seconds(9)}; };
  for (std::uint64_t number = 1; number <= 4; ++number) source.log->issued(at(number));
  source.log->started(at(1));
  source.log->finished(at(1), "shm", "shm", {});
  source.log->started(at(2));
  source.log->finished(at(2), "nccl", "nccl", {});
  source.group.on_devices = {2};
  TraceBoard& board = TraceBoard::instance();
  board.add(source);
  const GroupReport report = board.report().groups.at(0);
  board.remove(source);
  EXPECT_EQ(report.description, "a pair");
  ASSERT_EQ(report.calls_under_way, 3u);
  EXPECT_EQ(report.under_way[0].sequence, 2u) << "the device is not done with it";
  EXPECT_EQ(report.under_way[0].state, FlightState::kStarted);
  EXPECT_EQ(report.under_way[1].state, FlightState::kIssued);
  EXPECT_EQ(report.under_way[0].thread, gettid());
  ASSERT_TRUE(report.last_done);
  EXPECT_EQ(report.last_done->sequence, 1u);
}

TEST(TraceBoard, BearsWithClientsThatAskBadly) {
  OneGroup source("x");
  source.group.closed = std::string(1 << 20, 'x');  // more than a socket takes at once
  TraceBoard& board = TraceBoard::instance();
  board.add(source);
  const std::string name = own_sockets().at(0);
  std::vector<int> clients;
  for (int i = 0; i < 5; ++i) clients.push_back(connect_to(name));  // say nothing
  for (int i = 0; i < 5; ++i) {                                     // ask, and do not read
    clients.push_back(connect_to(name));
    send(clients.back(), "report\n", 7, MSG_NOSIGNAL);
  }
  clients.push_back(connect_to(name));  // asks, and is gone
  send(clients.back(), "report\n", 7, MSG_NOSIGNAL);
  close(clients.back());
  clients.pop_back();
  EXPECT_EQ(ask(name, std::string(1000, 'g')), "");
  EXPECT_GT(ask(name, "report\n").size(), std::size_t{1 << 20});
  EXPECT_EQ(read_all(clients[0]), "") << "who says nothing is let go";
  for (const int client : clients) close(client);
  board.remove(source);
  EXPECT_TRUE(own_sockets().empty());
}

TEST(TraceBoard, IsNotThereWhereTheUserTurnsItOff) {
  setenv("ALTORCH_TRACE", "off", 1);
  OneGroup source("x");
  TraceBoard::instance().add(source);
  EXPECT_TRUE(own_sockets().empty());
  TraceBoard::instance().remove(source);
  unsetenv("ALTORCH_TRACE");
}

// What a process of its own writes to standard error when it gets SIGUSR1, or nothing where that
// ended it.
std::optional<std::string> after_signal(const std::function<void()>& before) {
  int pipe_ends[2], ready[2];
  EXPECT_EQ(pipe2(pipe_ends, O_CLOEXEC), 0);
  EXPECT_EQ(pipe2(ready, O_CLOEXEC), 0);
  const pid_t child = fork();
  if (child == 0) {
    dup2(pipe_ends[1], STDERR_FILENO);
    before();
    if (write(ready[1], "r", 1) < 0) _exit(2);
    std::this_thread::sleep_for(seconds(30));
    _exit(0);
  }
  close(pipe_ends[1]);
  close(ready[1]);
  char byte = 0;
  EXPECT_EQ(read(ready[0], &byte, 1), 1);
  close(ready[0]);
  kill(child, SIGUSR1);
  std::string text;
  char bytes[4096];
  while (text.find("flight record:") == std::string::npos) {
    const ssize_t count = read(pipe_ends[0], bytes, sizeof bytes);
    if (count <= 0) break;
    text.append(bytes, static_cast<std::size_t>(count));
  }
  close(pipe_ends[0]);
  kill(child, SIGKILL);
  int status = 0;
  waitpid(child, &status, 0);
  if (WIFSIGNALED(status) && WTERMSIG(status) == SIGUSR1) return std::nullopt;
  return text;
}

TEST(TraceSignal, HasTheProcessSayWhatItIsAt) {
  const auto text = after_signal([] {
    // A board of its own: the one of the parent, if there is one, is for the parent.
    auto* const board = new TraceBoard();
    board->add(*new OneGroup("of the child"));
  });
  ASSERT_TRUE(text);
  EXPECT_TRUE(says(*text, "group 'of the child'")) << *text;
  EXPECT_TRUE(says(*text, "flight record: this torch takes no")) << *text;
}

TEST(TraceSignal, IsGivenBack) {
  const auto text = after_signal([] {
    auto* const board = new TraceBoard();
    OneGroup source("x");
    board->add(source);
    board->remove(source);
  });
  EXPECT_FALSE(text) << "the default action is the end";
}

TEST(TraceSignal, IsLeftToAProgramThatHasAHandler) {
  const auto text = after_signal([] {
    signal(SIGUSR1, [](int) {
      const char words[] = "flight record: the program's";
      if (write(STDERR_FILENO, words, sizeof words - 1) < 0) _exit(3);
    });
    auto* const board = new TraceBoard();
    board->add(*new OneGroup("x"));
  });
  ASSERT_TRUE(text);
  EXPECT_EQ(*text, "flight record: the program's");
}

TEST(TraceSignal, IsNotTakenWhereOnlyTheSocketIsWanted) {
  const auto text = after_signal([] {
    setenv("ALTORCH_TRACE", "socket", 1);
    auto* const board = new TraceBoard();
    board->add(*new OneGroup("x"));
  });
  EXPECT_FALSE(text);
}

// Its child does not report in its name, and dies of the signal as any process.
TEST(TraceSignal, IsNotForChildren) {
  const auto text = after_signal([] {
    auto* const board = new TraceBoard();
    board->add(*new OneGroup("x"));
    const pid_t child = fork();
    if (child == 0) {
      raise(SIGUSR1);
      _exit(0);
    }
    int status = 0;
    waitpid(child, &status, 0);
    const bool right = WIFSIGNALED(status) && WTERMSIG(status) == SIGUSR1;
    if (write(STDERR_FILENO, right ? "right " : "wrong ", 6) < 0) _exit(3);
  });
  ASSERT_TRUE(text);
  EXPECT_TRUE(text->starts_with("right ")) << *text;
}

}  // namespace
}  // namespace altorch
