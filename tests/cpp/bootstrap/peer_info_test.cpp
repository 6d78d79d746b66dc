// SPDX-License-Identifier: BSD-3-Clause
#include "bootstrap/peer_info.h"

#include <gtest/gtest.h>

#include <set>
#include <thread>
#include <vector>

#include "base/error.h"
#include "base/fields.h"
#include "support/map_store.h"

namespace altorch {
namespace {

using std::chrono::milliseconds;

PeerInfo example() {
  PeerInfo peer;
  peer.problem = "no library";
  peer.mode = StartMode::kLauncher;
  peer.version = "Open MPI v4.1.4";
  peer.job = "altorch-1";
  peer.node = "boot/pid:[1]/ipc:[2]/shm:3:1";
  peer.memory = {123, 0xfffffffffffffff0u, 42};
  peer.free_shared_memory = 1'000'000'000'000;
  peer.address = "10.0.0.1";
  peer.address_is_loopback = false;
  peer.cores = "0-3,8";
  peer.network = "boot/net:[1]";
  peer.has_fast_network = true;
  peer.allows_ofi = true;
  return peer;
}

TEST(PeerInfo, SurvivesTheStore) {
  const PeerInfo peer = decode_peer_info(encode(example()));
  EXPECT_EQ(peer.problem, "no library");
  EXPECT_TRUE(peer.mode == StartMode::kLauncher);
  EXPECT_EQ(peer.version, "Open MPI v4.1.4");
  EXPECT_EQ(peer.job, "altorch-1");
  EXPECT_EQ(peer.node, "boot/pid:[1]/ipc:[2]/shm:3:1");
  EXPECT_EQ(peer.memory.process, 123);
  EXPECT_EQ(peer.memory.address, 0xfffffffffffffff0u);
  EXPECT_EQ(peer.free_shared_memory, 1'000'000'000'000u);
  EXPECT_EQ(peer.address, "10.0.0.1");
  EXPECT_FALSE(peer.address_is_loopback);
  EXPECT_EQ(peer.cores, "0-3,8");
  EXPECT_EQ(peer.network, "boot/net:[1]");
  EXPECT_TRUE(peer.has_fast_network);
  EXPECT_TRUE(peer.allows_ofi);
}

TEST(PeerInfo, EmptyFieldsSurvive) {
  const PeerInfo peer = decode_peer_info(encode(PeerInfo{}));
  EXPECT_EQ(peer.problem, "");
  EXPECT_EQ(peer.address, "");
}

TEST(PeerInfo, SomethingElseIsRefused) { EXPECT_THROW(decode_peer_info("hello"), Error); }

// Runs `body(rank)` on one thread per rank.
template <typename Body>
void on_ranks(int size, Body body) {
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank) threads.emplace_back([=] { body(rank); });
  for (std::thread& thread : threads) thread.join();
}

TEST(ExchangePeerInfo, EveryRankGetsTheSameTable) {
  constexpr int kSize = 6;
  MapStore store;
  std::vector<PeerTable> tables(kSize);
  on_ranks(kSize, [&](int rank) {
    PeerInfo peer;
    peer.version = "version " + std::to_string(rank);
    tables[static_cast<std::size_t>(rank)] =
        exchange_peer_info(peer, rank, kSize, store, "p/", milliseconds(10000));
  });
  for (const PeerTable& table : tables) {
    EXPECT_EQ(table.job, tables[0].job);
    ASSERT_EQ(table.peers.size(), static_cast<std::size_t>(kSize));
    for (std::size_t i = 0; i < table.peers.size(); ++i) {
      EXPECT_EQ(table.peers[i].version, "version " + std::to_string(i));
    }
  }
}

TEST(ExchangePeerInfo, DrawsANewJobNameEveryTime) {
  std::set<std::string> names;
  for (int i = 0; i < 50; ++i) {
    MapStore store;
    const std::string name = exchange_peer_info(PeerInfo{}, 0, 1, store, "", milliseconds(100)).job;
    EXPECT_LT(name.size(), 64u);
    names.insert(name);
  }
  EXPECT_EQ(names.size(), 50u);
}

TEST(ExchangePeerInfo, NamesTheRanksThatDidNotCome) {
  MapStore store;
  store.set("peers/1", encode(PeerInfo{}));
  try {
    exchange_peer_info(PeerInfo{}, 0, 4, store, "", milliseconds(30));
    ADD_FAILURE() << "no error";
  } catch (const Error& error) {
    EXPECT_TRUE(error.kind() == ErrorKind::kTimeout);
    EXPECT_NE(std::string(error.what()).find("2, 3"), std::string::npos);
  }
}

TEST(AllAgree, OneNoIsANoForAll) {
  for (int refusing : {-1, 0, 3}) {
    constexpr int kSize = 4;
    MapStore store;
    std::vector<int> decisions(kSize, -1);
    on_ranks(kSize, [&](int rank) {
      decisions[static_cast<std::size_t>(rank)] =
          all_agree(rank != refusing, kSize, store, "key", milliseconds(10000));
    });
    for (int decision : decisions) EXPECT_EQ(decision, refusing < 0 ? 1 : 0);
  }
}

TEST(NumberNodes, InOrderOfFirstAppearance) {
  EXPECT_EQ(number_nodes({"b", "a", "b", "c"}), (std::vector<int>{0, 1, 0, 2}));
}

TEST(PeerInfo, AJobsNameIsNoPath) {
  for (const char* name : {"altorch-/../../node", "altorch-", "other-12", "altorch-12/x"}) {
    MapStore store;
    const std::string own = "\x1e" + encode(PeerInfo{});
    store.set("peers/table", encode_fields({name + own, own}));
    EXPECT_THROW(exchange_peer_info(PeerInfo{}, 1, 2, store, "", milliseconds(1000)), Error) << name;
  }
}

}  // namespace
}  // namespace altorch
