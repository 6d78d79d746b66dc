// SPDX-License-Identifier: BSD-3-Clause
#include "bootstrap/topology.h"

#include <algorithm>
#include <map>

#include "base/error.h"
#include "bootstrap/probes.h"
#include "platform/cores.h"

namespace altorch {
namespace {

// Shared memory that one rank takes of /dev/shm: 5.3 MB with MPICH 5, 4 MB and some with Open MPI
// 4.
constexpr std::uint64_t kSharedMemoryPerRank = 6'000'000;
// MPICH 5 takes 1 to 2 MiB for a rank that is alone on its node, too.
constexpr std::uint64_t kSharedMemoryAlone = 2'500'000;

// Every rank decides the same, because all have the same table.
void check_shared_memory(const std::vector<PeerInfo>& peers, const std::vector<int>& nodes) {
  for (std::size_t i = 0; i < peers.size(); ++i) {
    const auto ranks = static_cast<std::uint64_t>(std::count(nodes.begin(), nodes.end(), nodes[i]));
    if (ranks == 1 && peers[i].version.find("Open MPI") != std::string::npos) continue;  // it takes none
    const std::uint64_t needed = ranks == 1 ? kSharedMemoryAlone : ranks * kSharedMemoryPerRank;
    if (peers[i].free_shared_memory >= needed) continue;
    throw Error(ErrorKind::kUnsupported,
                "/dev/shm on the node of rank " + std::to_string(i) + " has " +
                    std::to_string(peers[i].free_shared_memory / 1'000'000) + " MB free, and MPI needs " +
                    std::to_string(needed / 1'000'000) + " MB for the " + std::to_string(ranks) +
                    (ranks == 1 ? " rank" : " ranks") +
                    " there, or dies of SIGBUS. Free some, or make it larger (docker run --shm-size=1g).");
  }
}

// Each rank tries the next one of its node; together they try all that matters, for the rules are
// the same for all.
bool neighbour_is_readable(const std::vector<PeerInfo>& peers, const std::vector<int>& nodes, int rank) {
  const int size = static_cast<int>(peers.size());
  for (int step = 1; step < size; ++step) {
    const auto other = static_cast<std::size_t>((rank + step) % size);
    if (nodes[other] == nodes[static_cast<std::size_t>(rank)]) return can_read_memory(peers[other].memory);
  }
  return true;
}

bool has_more_ranks_than_cores(const std::vector<PeerInfo>& peers, const std::vector<int>& nodes, int rank) {
  std::vector<std::string> cores;
  for (std::size_t each = 0; each < peers.size(); ++each) {
    if (nodes[each] == nodes[static_cast<std::size_t>(rank)]) cores.push_back(peers[each].cores);
  }
  return static_cast<int>(cores.size()) > count_cores(cores).value_or(1);
}

bool splits_a_host(const std::vector<PeerInfo>& peers) {
  std::map<std::string, std::string> nodes;  // by network
  return std::any_of(peers.begin(), peers.end(), [&](const PeerInfo& peer) {
    return nodes.try_emplace(peer.network, peer.node).first->second != peer.node;
  });
}

// The interface that reaches the other nodes. On the master's own node the route to the master is
// the loopback, so a rank there takes the route to a rank of another node.
std::string outward_interface(const std::vector<PeerInfo>& peers, const std::vector<int>& nodes, int rank,
                              const std::string& master) {
  RouteToHost route = route_to(master);
  for (std::size_t i = 0; i < peers.size() && (route.interface.empty() || route.is_loopback); ++i) {
    if (nodes[i] != nodes[static_cast<std::size_t>(rank)] && !peers[i].address_is_loopback) {
      route = route_to(peers[i].address);
    }
  }
  return route.is_loopback ? "" : route.interface;
}

// Ranks whose addresses are all loopbacks are on one host.
bool uses_ofi(const std::vector<PeerInfo>& peers, int nodes) {
  const auto allows = [](const PeerInfo& peer) { return peer.allows_ofi; };
  const auto is_local = [](const PeerInfo& peer) { return peer.address_is_loopback; };
  return nodes > 1 && std::all_of(peers.begin(), peers.end(), allows) &&
         !std::all_of(peers.begin(), peers.end(), is_local);
}

}  // namespace

Topology topology_of(const BootstrapOptions& options, const PeerTable& table) {
  Topology topology;
  topology.job = table.job;
  topology.prefix = options.job_id + "/" + table.job + "/";
  topology.peers = table.peers;
  topology.rank = options.rank;
  std::vector<std::string> keys;
  for (const PeerInfo& peer : table.peers) keys.push_back(peer.node);
  topology.node_of_rank = number_nodes(keys);
  const std::vector<int>& nodes = topology.node_of_rank;
  topology.node_count = *std::max_element(nodes.begin(), nodes.end()) + 1;
  check_shared_memory(table.peers, nodes);
  topology.splits_a_host = splits_a_host(table.peers);
  topology.more_ranks_than_cores = has_more_ranks_than_cores(table.peers, nodes, options.rank);
  topology.has_fast_network = std::all_of(table.peers.begin(), table.peers.end(),
                                          [](const PeerInfo& peer) { return peer.has_fast_network; });
  topology.uses_ofi = uses_ofi(table.peers, topology.node_count);
  if (topology.node_count > 1) {
    topology.interface = outward_interface(table.peers, nodes, options.rank, options.master_address);
  }
  topology.memory_is_readable =
      all_agree(neighbour_is_readable(table.peers, nodes, options.rank), options.size, *options.store,
                topology.prefix + "memory", options.timeout);
  return topology;
}

}  // namespace altorch
