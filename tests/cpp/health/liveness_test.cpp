// SPDX-License-Identifier: BSD-3-Clause
#include "health/liveness.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <mutex>
#include <thread>

#include "base/error.h"
#include "health/node_links.h"
#include "support/map_store.h"

namespace altorch {
namespace {

LivenessSettings settings_of(std::shared_ptr<KeyValueStore> store, int rank,
                             std::map<int, ProcessId> members) {
  LivenessSettings settings;
  settings.store = std::move(store);
  settings.rank = rank;
  settings.members = std::move(members);
  settings.address = settings.master = "127.0.0.1";
  return settings;
}

// A process that sleeps until it is killed.
pid_t fork_a_sleeper() {
  const pid_t child = fork();
  if (child == 0) {
    pause();
    _exit(0);
  }
  return child;
}

// As for want of descriptors, or where the kernel knows no pidfds.
TEST(Liveness, SaysWhichProcessesItCannotWatch) {
  const ProcessId own = ProcessId::own();
  testing::internal::CaptureStderr();
  {
    Liveness liveness(
        settings_of(std::make_shared<MapStore>(), 0, {{0, own}, {1, {own.node, -1}}, {2, {own.node, -1}}}));
    EXPECT_FALSE(liveness.check(std::vector<int>{1, 2}, false)) << "no rank knows that they have ended";
  }
  const std::string said = testing::internal::GetCapturedStderr();
  EXPECT_NE(said.find("2 of the processes of this node cannot be watched (pidfd_open: "), std::string::npos)
      << said;
}

TEST(Liveness, SeesAKilledNeighbourAndTellsOtherNodes) {
  const pid_t child = fork_a_sleeper();
  auto store = std::make_shared<MapStore>();
  // Numbers of the job, of which this watch knows three.
  const ProcessId own = ProcessId::own();
  Liveness liveness(settings_of(store, 5, {{5, own}, {1, {own.node, child}}, {2, {"another-host/p", 77}}}));
  const std::vector<int> all_ranks = {0, 1, 2, 5};
  EXPECT_FALSE(liveness.check(all_ranks, true).has_value());
  kill(child, SIGKILL);
  std::optional<Liveness::Death> death;
  for (int i = 0; i < 2000 && !death; ++i) {
    death = liveness.check(all_ranks, false);
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  ASSERT_TRUE(death.has_value());
  EXPECT_EQ(death->rank, 1);
  for (int i = 0; i < 2000 && !store->try_get("death/1"); ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  EXPECT_EQ(store->try_get("death/1"), "1");
  EXPECT_EQ(store->try_get("deaths"), "1");
  waitpid(child, nullptr, 0);

  const std::vector<int> far = {2};
  EXPECT_FALSE(liveness.check(far, true).has_value());
  store->set("death/2", "2");
  store->add("deaths", 1);
  EXPECT_FALSE(liveness.check(far, false).has_value());
  ASSERT_TRUE(liveness.check(far, true).has_value());
}

// A rank that learns of a death may end its watch, and let the store go, at once.
TEST(Liveness, HasToldOtherNodesWhatItKnewWhenItEnds) {
  for (const bool ended_before : {true, false}) {
    SCOPED_TRACE(ended_before);
    const pid_t child = fork_a_sleeper();
    const auto end_child = [&] {
      kill(child, SIGKILL);
      waitpid(child, nullptr, 0);
    };
    if (ended_before) end_child();
    auto store = std::make_shared<MapStore>();
    const ProcessId own = ProcessId::own();
    const std::vector<int> neighbour = {1};
    {
      Liveness liveness(
          settings_of(store, 0, {{0, own}, {1, {own.node, child}}, {2, {"another-host/p", 77}}}));
      if (!ended_before) end_child();
      bool knows = false;
      for (int i = 0; i < 2000 && !knows; ++i) {
        knows = liveness.check(neighbour, false).has_value();
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      }
      EXPECT_TRUE(knows);
    }
    EXPECT_EQ(store->try_get("death/1"), "1");
  }
}

// Which does not answer, as one whose host is the rank that died.
class DeadStore : public MapStore {
 public:
  std::optional<std::string> try_get(const std::string&) override {
    throw Error(ErrorKind::kTransport, "gone");
  }
  std::int64_t add(const std::string&, std::int64_t) override { throw Error(ErrorKind::kTransport, "gone"); }
};

// Rank 0 is on another node; rank 1 is linked to it, and tells rank 2.
TEST(Liveness, NeighboursTellEachOtherOfADeathElsewhereWithoutTheStore) {
  auto store = std::make_shared<MapStore>();
  const ProcessId own = ProcessId::own();
  const std::map<int, ProcessId> members = {
      {0, {"another-host/p", 77}}, {1, own}, {2, own}, {3, {own.node, getppid()}}};
  std::map<int, LivenessSettings> settings;
  for (const int rank : {0, 1, 2}) {
    settings[rank] = settings_of(store, rank, members);
    settings[rank].name = "job/watch" + std::to_string(getpid());
  }
  auto dead = std::make_shared<DeadStore>();
  settings[1].retrying = store;  // where it finds its link
  settings[1].store = settings[2].store = dead;
  auto coordinator = std::make_unique<NodeLinks>(settings[0]);
  coordinator->open();
  Liveness first(settings[1]), second(settings[2]);
  std::vector<pollfd> entries;
  for (int i = 0; i < 3000 && entries.size() < 2; ++i) {  // rank 1 has connected
    entries.clear();
    coordinator->add_to(entries);
    poll(entries.data(), entries.size(), 1);
    coordinator->look(entries);
    entries.clear();
    coordinator->add_to(entries);
  }
  ASSERT_EQ(entries.size(), 2U);
  for (int i = 0; i < 1000; ++i) {  // it has said who it is
    entries.clear();
    coordinator->add_to(entries);
    if (poll(entries.data(), entries.size(), 1) > 0) coordinator->look(entries);
  }
  shutdown(entries.front().fd, SHUT_RDWR);  // as the end of a process does
  const std::vector<int> all_ranks = {0, 1, 2, 3};
  std::optional<Liveness::Death> death;
  for (int i = 0; i < 5000 && !death; ++i) {
    death = second.check(all_ranks, false);
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  ASSERT_TRUE(death.has_value());
  EXPECT_EQ(death->rank, 0);
  EXPECT_NE(death->evidence.find("a neighbour no longer sees process 77"), std::string::npos)
      << death->evidence;
}

// The same way: from rank 1 to the coordinator, to the leader of node b, to its neighbour.
TEST(Liveness, ADeathIsKnownOnOtherNodesWithoutTheStore) {
  const pid_t child = fork_a_sleeper();
  auto store = std::make_shared<MapStore>();
  const ProcessId own = ProcessId::own();
  const std::map<int, ProcessId> members = {
      {0, {"a/p", own.pid}}, {1, own}, {2, {own.node, child}}, {3, {"b/p", own.pid}}, {4, {"b/p", own.pid}}};
  std::map<int, std::unique_ptr<Liveness>> ranks;
  for (const int rank : {0, 1, 3, 4}) {
    LivenessSettings settings = settings_of(store, rank, members);
    settings.name = "job/death" + std::to_string(own.pid);
    ranks[rank] = std::make_unique<Liveness>(std::move(settings));
  }
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  const std::vector<int> dead = {2};
  for (const auto& [rank, liveness] : ranks) {
    std::optional<Liveness::Death> death;
    for (int i = 0; i < 5000 && !death; ++i) {
      death = liveness->check(dead, /*ask_store=*/false);
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    ASSERT_TRUE(death.has_value()) << "rank " << rank;
    const char* const evidence = rank == 1 ? "has ended" : rank == 4 ? "a neighbour" : "another node";
    EXPECT_NE(death->evidence.find(evidence), std::string::npos) << rank << ": " << death->evidence;
  }
}

// From one node of two ranks to another, by way of the coordinator, which is in a third.
TEST(Liveness, AQuestionComesToTheNodeOfTheRankThatIsAskedFor) {
  auto store = std::make_shared<MapStore>();
  const ProcessId own = ProcessId::own();
  const std::map<int, ProcessId> members = {
      {0, {"a/p", own.pid}}, {1, own}, {2, own}, {3, {"b/p", own.pid}}, {4, {"b/p", getppid()}}};
  struct Heard {
    std::mutex mutex;
    std::vector<std::pair<int, std::string>> questions;
  };
  const auto heard = std::make_shared<Heard>();  // the threads may outlive this test
  std::map<int, std::unique_ptr<Liveness>> ranks;
  for (const int rank : {0, 1, 2, 3}) {
    LivenessSettings settings = settings_of(store, rank, members);
    settings.name = "job/asked" + std::to_string(own.pid);
    settings.asked = [heard, rank](const LateQuestion& question, long pid) {
      const std::lock_guard lock(heard->mutex);
      heard->questions.emplace_back(rank, std::to_string(pid) + " " + question.line());
    };
    ranks[rank] = std::make_unique<Liveness>(std::move(settings));
  }
  const auto hears = [&](int from, const LateQuestion& question, int to, long pid) {
    const std::pair<int, std::string> expected(to, std::to_string(pid) + " " + question.line());
    for (int i = 0; i < 300; ++i) {
      ranks[from]->ask(question);  // again, until they are linked
      for (int j = 0; j < 100; ++j) {
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
        const std::lock_guard lock(heard->mutex);
        const auto& all = heard->questions;
        if (std::find(all.begin(), all.end(), expected) != all.end()) return true;
      }
    }
    return false;
  };
  EXPECT_TRUE(hears(2, {4, "far"}, 3, getppid()));
  EXPECT_TRUE(hears(3, {2, "back"}, 1, own.pid));
  EXPECT_TRUE(hears(2, {0, "to the coordinator"}, 0, own.pid));
  EXPECT_TRUE(hears(0, {4, "from the coordinator"}, 3, getppid()));
  ranks[2]->ask({9, "none"});
  ranks[0]->ask({9, "none"});
  ranks[0]->ask({4, "no\nline"});
  EXPECT_TRUE(hears(2, {3, "after that"}, 3, own.pid));
  const std::lock_guard lock(heard->mutex);
  for (const auto& [rank, question] : heard->questions)
    EXPECT_EQ(question.find("no"), std::string::npos) << question;
  for (auto& [rank, each] : ranks) EXPECT_TRUE(each->deaths().empty()) << rank;
}

}  // namespace
}  // namespace altorch
