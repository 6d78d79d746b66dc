// SPDX-License-Identifier: BSD-3-Clause
#include "bootstrap/topology.h"

#include <gtest/gtest.h>

#include "support/map_store.h"

namespace altorch {
namespace {

// Of two ranks on two nodes, as rank 0 sees them.
Topology topology_with(bool first_is_fast, bool second_is_fast) {
  MapStore store;
  BootstrapOptions options;
  options.rank = 0;
  options.size = 1;  // who agrees on what follows
  options.store = &store;
  PeerTable table{.job = "altorch-1", .peers = std::vector<PeerInfo>(2)};
  table.peers[0].node = "first";
  table.peers[1].node = "second";
  table.peers[0].has_fast_network = first_is_fast;
  table.peers[1].has_fast_network = second_is_fast;
  for (PeerInfo& peer : table.peers) peer.free_shared_memory = std::uint64_t{1} << 40;
  return topology_of(options, table);
}

// Ranks that choose different networks could not talk to each other.
TEST(Topology, HasAFastNetworkWhereAllNodesHaveOne) {
  EXPECT_TRUE(topology_with(true, true).has_fast_network);
  EXPECT_FALSE(topology_with(true, false).has_fast_network);
  EXPECT_FALSE(topology_with(false, false).has_fast_network);
  EXPECT_EQ(topology_with(false, false).node_count, 2);
}

}  // namespace
}  // namespace altorch
