// SPDX-License-Identifier: BSD-3-Clause
#include "bootstrap/pmi1_server.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <string>
#include <thread>
#include <vector>

#include "support/map_store.h"

namespace altorch {
namespace {

// Speaks to the server as MPICH does: a line out, a line in.
std::string ask(int fd, const std::string& line) {
  if (send(fd, line.data(), line.size(), MSG_NOSIGNAL) != static_cast<ssize_t>(line.size())) return "";
  std::string answer;
  char c;
  while (recv(fd, &c, 1, 0) == 1) {
    answer += c;
    if (c == '\n') break;
  }
  return answer;
}

Pmi1Job job_of(int rank, int size) {
  Pmi1Job job;
  job.rank = rank;
  job.size = size;
  job.name = "altorch-0123";
  job.node_of_rank.assign(static_cast<std::size_t>(size), 0);
  job.key_prefix = "job/";
  job.timeout = std::chrono::seconds(10);
  return job;
}

TEST(Pmi1Server, AnswersTheOpeningOfMpich) {
  MapStore store;
  auto server = Pmi1Server::start(job_of(0, 3), &store);
  const int fd = server->client_fd();
  // More than version 1.1 would make newer clients change their language.
  EXPECT_EQ(ask(fd, "cmd=init pmi_version=1 pmi_subversion=1\n"),
            "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0\n");
  EXPECT_EQ(ask(fd, "cmd=get_maxes\n"), "cmd=maxes kvsname_max=64 keylen_max=256 vallen_max=512\n");
  EXPECT_EQ(ask(fd, "cmd=get_appnum\n"), "cmd=appnum appnum=0\n");
  EXPECT_EQ(ask(fd, "cmd=get_my_kvsname\n"), "cmd=my_kvsname kvsname=altorch-0123\n");
  EXPECT_EQ(ask(fd, "cmd=get_universe_size\n"), "cmd=universe_size size=3\n");
  EXPECT_EQ(ask(fd, "cmd=finalize\n"), "cmd=finalize_ack\n");
  close(fd);
}

TEST(Pmi1Server, KeepsKeysWithSlashesAndValuesWithEqualsSigns) {
  MapStore store;
  auto server = Pmi1Server::start(job_of(0, 1), &store);
  const int fd = server->client_fd();
  EXPECT_EQ(
      pmi1_field(ask(fd, "cmd=put kvsname=altorch-0123 key=-bcast-1-0-seg-1/17 value=mpi#a=b c\n"), "rc"),
      "0");
  const std::string answer = ask(fd, "cmd=get kvsname=altorch-0123 key=-bcast-1-0-seg-1/17\n");
  EXPECT_EQ(pmi1_field(answer, "rc"), "0");
  EXPECT_EQ(pmi1_field(answer, "value"), "mpi#a=b c");
  EXPECT_EQ(pmi1_field(ask(fd, "cmd=get kvsname=altorch-0123 key=nothing\n"), "rc"), "-1");
  // Offers of other process managers: refused without a look at the store.
  store.set("job/PMI_hwloc_xmlfile", "trap");
  EXPECT_EQ(pmi1_field(ask(fd, "cmd=get kvsname=altorch-0123 key=PMI_hwloc_xmlfile\n"), "rc"), "-1");
  close(fd);
}

TEST(Pmi1Server, TwoLinesInOnePacketGetTwoAnswers) {
  MapStore store;
  auto server = Pmi1Server::start(job_of(0, 1), &store);
  const int fd = server->client_fd();
  EXPECT_EQ(ask(fd, "cmd=get_appnum\ncmd=get_universe_size\n"), "cmd=appnum appnum=0\n");
  EXPECT_EQ(ask(fd, "\n"), "cmd=universe_size size=1\n");
  close(fd);
}

TEST(Pmi1Server, RanksMeetInBarriersAndReadEachOther) {
  constexpr int kSize = 5, kRounds = 4;
  MapStore store;
  std::vector<std::thread> ranks;
  std::vector<int> good(kSize, 0);
  for (int rank = 0; rank < kSize; ++rank) {
    ranks.emplace_back([&, rank] {
      auto server = Pmi1Server::start(job_of(rank, kSize), &store);
      const int fd = server->client_fd();
      for (int round = 0; round < kRounds; ++round) {
        const std::string mine = std::to_string(round) + "/" + std::to_string(rank);
        ask(fd, "cmd=put kvsname=x key=" + mine + " value=from" + mine + "\n");
        if (ask(fd, "cmd=barrier_in\n") != "cmd=barrier_out rc=0\n") return;
        for (int peer = 0; peer < kSize; ++peer) {
          const std::string key = std::to_string(round) + "/" + std::to_string(peer);
          good[static_cast<std::size_t>(rank)] +=
              pmi1_field(ask(fd, "cmd=get kvsname=x key=" + key + "\n"), "value") == "from" + key;
        }
      }
      close(fd);
    });
  }
  for (std::thread& rank : ranks) rank.join();
  for (int count : good) EXPECT_EQ(count, kSize * kRounds);
}

TEST(Pmi1Server, AMissingRankIsAFailureAndNotAHang) {
  MapStore store;
  Pmi1Job job = job_of(0, 2);
  job.timeout = std::chrono::milliseconds(50);
  auto server = Pmi1Server::start(job, &store);
  EXPECT_EQ(pmi1_field(ask(server->client_fd(), "cmd=barrier_in\n"), "rc"), "-1");
  EXPECT_FALSE(server->failure().empty());
  close(server->client_fd());
}

TEST(Pmi1Server, SaysGoodbyeWithoutAStore) {
  auto store = std::make_unique<MapStore>();
  auto server = Pmi1Server::start(job_of(0, 2), store.get());
  const int fd = server->client_fd();
  server->detach_store();
  store.reset();
  EXPECT_EQ(pmi1_field(ask(fd, "cmd=get kvsname=x key=a\n"), "rc"), "-1");
  EXPECT_EQ(ask(fd, "cmd=barrier_in\n"), "cmd=barrier_out rc=0\n");
  EXPECT_EQ(ask(fd, "cmd=finalize\n"), "cmd=finalize_ack\n");
  close(fd);
}

TEST(Pmi1Server, RefusesWhatItDoesNotOffer) {
  MapStore store;
  auto server = Pmi1Server::start(job_of(0, 1), &store);
  EXPECT_EQ(pmi1_field(ask(server->client_fd(), "cmd=spawn nprocs=1\n"), "rc"), "-1");
  close(server->client_fd());
}

TEST(Pmi1Server, TellsWhoSharesTheNode) {
  MapStore store;
  Pmi1Job job = job_of(2, 4);
  job.node_of_rank = {0, 1, 0, 1};
  auto server = Pmi1Server::start(job, &store);
  EXPECT_EQ(ask(server->client_fd(), "cmd=get_node_mates\n"), "cmd=node_mates ranks=0,2\n");
  EXPECT_EQ(pmi1_field(ask(server->client_fd(), "cmd=get kvsname=x key=PMI_process_mapping\n"), "value"),
            "(vector,(0,2,1),(0,2,1))");
  close(server->client_fd());
}

TEST(Pmi1Field, TakesWholeWords) {
  EXPECT_EQ(pmi1_field("cmd=put kvsname=a key=b value=c d\n", "key"), "b");
  EXPECT_EQ(pmi1_field("cmd=put kvsname=a key=b value=c d\n", "name"), "");
  EXPECT_EQ(pmi1_field("cmd=put kvsname=a key=b value=c d\n", "value"), "c d");
  EXPECT_EQ(pmi1_field("cmd=get\n", "key"), "");
}

TEST(ProcessMapping, DescribesBlocks) {
  EXPECT_EQ(process_mapping({0, 0, 0, 0}), "(vector,(0,1,4))");
  EXPECT_EQ(process_mapping({0, 0, 1, 1}), "(vector,(0,2,2))");
  EXPECT_EQ(process_mapping({0, 0, 0, 1}), "(vector,(0,1,3),(1,1,1))");
  EXPECT_EQ(process_mapping({0, 1, 0}), "(vector,(0,2,1),(0,1,1))");
  // Too long for PMI: left to MPI.
  std::vector<int> scattered;
  for (int i = 0; i < 1000; ++i) scattered.push_back(i * 7 % 13);
  EXPECT_EQ(process_mapping(scattered), "");
}

TEST(Pmi1Server, HangsUpOnWhatIsNoPmi) {
  MapStore store;
  auto server = Pmi1Server::start(job_of(0, 1), &store);
  EXPECT_EQ(ask(server->client_fd(), std::string(10000, 'x')), "");
  EXPECT_FALSE(server->failure().empty());
  close(server->client_fd());
}

}  // namespace
}  // namespace altorch
