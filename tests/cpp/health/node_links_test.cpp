// SPDX-License-Identifier: BSD-3-Clause
#include "health/node_links.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <functional>
#include <sstream>
#include <system_error>
#include <thread>

#include "base/random_name.h"
#include "bootstrap/file_store.h"
#include "health/liveness.h"
#include "health/sockets.h"

namespace altorch {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

// Two processes of one job that do not see each other's process ids, as far as they know.
class NodeLinksTest : public ::testing::Test {
 protected:
  NodeLinksTest()
      : directory_(std::filesystem::temp_directory_path() / ("altorch-test-" + random_name())),
        store_(std::make_shared<FileStore>(directory_.string())) {}
  ~NodeLinksTest() override {
    if (child_ > 0) {
      kill(child_, SIGKILL);
      waitpid(child_, nullptr, 0);
    }
    // The threads that watch a peer's node outlive a Liveness, and may still write of its death.
    std::error_code failed;
    for (int i = 0; i < 1000; ++i) {
      std::filesystem::remove_all(directory_, failed);
      if (!failed) return;
      std::this_thread::sleep_for(milliseconds(1));
    }
    ADD_FAILURE() << "cannot remove " << directory_ << ": " << failed.message();
  }

  LivenessSettings settings_of(int rank) const {
    LivenessSettings settings;
    settings.store = store_;
    settings.rank = rank;
    settings.members = {{3, {"host/a", 11}}, {4, {"host/b", 12}}};
    settings.address = settings.master = "127.0.0.1";
    return settings;
  }

  // Forked before this process has threads of its own in the way.
  void start_rank_4(const std::function<void()>& then) {
    child_ = fork();
    if (child_ != 0) return;
    {
      Liveness liveness(settings_of(4));
      then();
    }
    std::this_thread::sleep_for(milliseconds(500));  // alive after it let its groups go
    _exit(0);
  }

  // Until the two nodes are connected, as the kernel sees it: tries come every half second, and on
  // a busy machine a process may take its time.
  void wait_until_connected() const {
    const auto end = std::chrono::steady_clock::now() + seconds(30);
    while (std::chrono::steady_clock::now() < end && !connected())
      std::this_thread::sleep_for(milliseconds(10));
    ASSERT_TRUE(connected());
  }
  bool connected() const {
    const auto coordinator = store_->try_get("coordinator");
    if (!coordinator) return false;
    char port[16];
    snprintf(port, sizeof port, ":%04X ", std::stoi(*coordinator));
    std::ifstream connections("/proc/self/net/tcp");
    for (std::string line; std::getline(connections, line);) {
      // number: local remote state: 01 is ESTABLISHED.
      if (line.find(port) != std::string::npos && line.find(" 01 ") != std::string::npos) return true;
    }
    return false;
  }

  bool dies_within(Liveness& liveness, int rank, milliseconds time) const {
    const std::vector<int> ranks = {rank};
    const auto end = std::chrono::steady_clock::now() + time;
    while (std::chrono::steady_clock::now() < end) {
      if (liveness.check(ranks, false)) return true;
      std::this_thread::sleep_for(milliseconds(5));
    }
    return false;
  }

  std::filesystem::path directory_;
  std::shared_ptr<FileStore> store_;
  pid_t child_ = -1;
};

TEST_F(NodeLinksTest, AKilledProcessOfAnotherNodeIsNoticedAndTold) {
  start_rank_4([] { pause(); });
  Liveness liveness(settings_of(3));
  wait_until_connected();
  EXPECT_FALSE(dies_within(liveness, 4, milliseconds(1500)));
  kill(child_, SIGSTOP);
  EXPECT_FALSE(dies_within(liveness, 4, milliseconds(1500))) << "a stopped process is not dead";
  kill(child_, SIGKILL);
  EXPECT_TRUE(dies_within(liveness, 4, seconds(5)));
  for (int i = 0; i < 1000 && !store_->try_get("death/1"); ++i) std::this_thread::sleep_for(milliseconds(1));
  EXPECT_EQ(store_->try_get("death/1"), "4");
}

TEST_F(NodeLinksTest, TheFirstRankIsMissedInTheSameWay) {
  child_ = fork();
  if (child_ == 0) {
    Liveness coordinator(settings_of(3));
    pause();
    _exit(0);
  }
  Liveness liveness(settings_of(4));
  wait_until_connected();
  EXPECT_FALSE(dies_within(liveness, 3, milliseconds(1500)));
  kill(child_, SIGKILL);
  EXPECT_TRUE(dies_within(liveness, 3, seconds(5)));
}

TEST_F(NodeLinksTest, WhoLetsItsGroupsGoIsNotDead) {
  start_rank_4([] { std::this_thread::sleep_for(milliseconds(1200)); });
  Liveness liveness(settings_of(3));
  EXPECT_FALSE(dies_within(liveness, 4, milliseconds(3000)));
}

TEST_F(NodeLinksTest, AForkedChildDoesNotKeepAConnectionAlive) {
  start_rank_4([] {
    std::this_thread::sleep_for(milliseconds(1000));
    if (fork() == 0) {  // as a data loader's worker, which outlives its parent
      std::this_thread::sleep_for(seconds(8));
      _exit(0);
    }
    pause();
  });
  Liveness liveness(settings_of(3));
  wait_until_connected();
  EXPECT_FALSE(dies_within(liveness, 4, milliseconds(2000)));
  kill(child_, SIGKILL);
  EXPECT_TRUE(dies_within(liveness, 4, seconds(4)));
}

TEST_F(NodeLinksTest, AStrangerProvesNothing) {
  Liveness liveness(settings_of(3));
  std::optional<std::string> coordinator;
  for (int i = 0; i < 2000 && !(coordinator = store_->try_get("coordinator")); ++i)
    std::this_thread::sleep_for(milliseconds(1));
  ASSERT_TRUE(coordinator.has_value());
  int port = 0;
  std::istringstream(*coordinator) >> port;
  const int stranger = connect_to("127.0.0.1", port);
  ASSERT_GE(stranger, 0);
  const std::string lie = std::string(32, '0') + "00000004";
  EXPECT_EQ(send(stranger, lie.data(), lie.size(), MSG_NOSIGNAL), static_cast<ssize_t>(lie.size()));
  char byte = 0;
  EXPECT_LE(recv(stranger, &byte, 1, 0), 0) << "it is dropped";
  close(stranger);
  EXPECT_FALSE(dies_within(liveness, 4, milliseconds(300)));
}

NodeLinks::Deaths step(NodeLinks& links) {
  std::vector<pollfd> entries;
  links.add_to(entries);
  poll(entries.data(), static_cast<nfds_t>(entries.size()), 5);
  return links.look(entries);
}

TEST_F(NodeLinksTest, ACoordinatorThatClosesAConnectionUnreadIsTriedAgain) {
  const LivenessSettings of_coordinator = settings_of(3), of_leader = settings_of(4);
  NodeLinks coordinator(of_coordinator), leader(of_leader);
  coordinator.open();
  std::vector<int> strangers;
  for (int i = 0; i < 80; ++i) {  // more than it keeps of those that say nothing
    strangers.push_back(connect_to("127.0.0.1", coordinator_place(*store_->try_get("coordinator"))->port));
    ASSERT_GE(strangers.back(), 0);
  }
  step(coordinator);
  leader.open();
  for (int i = 0; i < 200; ++i) {
    step(coordinator);
    EXPECT_EQ(step(leader), NodeLinks::Deaths()) << "look " << i;
  }
  for (const int stranger : strangers) close(stranger);
  std::vector<LateQuestion> asked;
  for (int i = 0; i < 1000 && asked.empty(); ++i) {
    EXPECT_EQ(step(leader), NodeLinks::Deaths());
    leader.pass_on({.rank = 3, .key = "group"});
    step(coordinator);
    asked = coordinator.take_news().questions;
  }
  EXPECT_FALSE(asked.empty()) << "the leader is connected in the end";
}

// Each once, whether the link was there when the death was told or not.
TEST_F(NodeLinksTest, TellADeathToEachNodeOnce) {
  const auto of_four = [&](int rank) {
    LivenessSettings settings = settings_of(rank);
    settings.members.insert({{5, {"host/c", 13}}, {6, {"host/c", 14}}, {7, {"host/b", 15}}});
    return settings;
  };
  const LivenessSettings of_coordinator = of_four(3), of_leader = of_four(4), of_other = of_four(5);
  NodeLinks coordinator(of_coordinator), leader(of_leader), other(of_other);
  std::map<NodeLinks*, std::vector<int>> heard;
  const auto run = [&](int looks) {
    for (int i = 0; i < looks; ++i) {
      for (NodeLinks* const each : {&coordinator, &leader, &other}) {
        step(*each);
        const std::vector<int> deaths = each->take_news().deaths;
        heard[each].insert(heard[each].end(), deaths.begin(), deaths.end());
      }
    }
  };
  leader.tell(7);
  coordinator.open();
  leader.open();
  other.open();
  for (int i = 0; i < 1000 && (heard[&coordinator].empty() || heard[&other].empty()); ++i) run(1);
  EXPECT_EQ(heard[&coordinator], std::vector{7});
  EXPECT_EQ(heard[&other], std::vector{7}) << "the coordinator has passed it on";
  other.tell(6);
  other.tell(6);
  coordinator.tell(6);  // which has seen it, too
  for (int i = 0; i < 1000 && heard[&leader].empty(); ++i) run(1);
  run(20);
  EXPECT_EQ(heard[&leader], std::vector{6});
  EXPECT_EQ(heard[&coordinator], std::vector{7});
  EXPECT_EQ(heard[&other], std::vector{7});
}

TEST_F(NodeLinksTest, ACoordinatorThatEndsBeforeItAcceptsAConnectionIsDead) {
  const LivenessSettings of_leader = settings_of(4);
  NodeLinks leader(of_leader);
  const auto [listener, port] = listen_on("127.0.0.1");
  store_->set("coordinator", std::to_string(port) + " " + std::string(32, 'a') + " 127.0.0.1");
  leader.open();
  std::vector<pollfd> entries;
  while (entries.empty()) {
    EXPECT_EQ(step(leader), NodeLinks::Deaths());
    leader.add_to(entries);
  }
  close(listener);  // the connection is reset
  NodeLinks::Deaths deaths;
  for (int i = 0; i < 2000 && deaths.empty(); ++i) deaths = step(leader);
  ASSERT_EQ(deaths.size(), 1u);
  EXPECT_EQ(deaths.front().first, 3);
}

TEST(CoordinatorPlace, IsAPortATokenAndPerhapsAnAddress) {
  const std::string token(32, 'a');
  EXPECT_EQ(coordinator_place("4000 " + token + " 10.0.0.1")->address, "10.0.0.1");
  EXPECT_EQ(coordinator_place("4000 " + token + " ")->port, 4000);
  for (const std::string& text : {"" + token, "70000 " + token, "-1 " + token, std::string("4000 short")})
    EXPECT_FALSE(coordinator_place(text).has_value()) << text;
}

}  // namespace
}  // namespace altorch
