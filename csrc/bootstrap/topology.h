// SPDX-License-Identifier: BSD-3-Clause
// Which ranks share a node, and what that allows, as one rank sees it. It follows from what all
// ranks have told each other.
#pragma once

#include <string>
#include <vector>

#include "bootstrap/bootstrap.h"
#include "bootstrap/peer_info.h"

namespace altorch {

struct Topology {
  std::string job;     // PeerTable::job
  std::string prefix;  // of the job's keys in the store
  std::vector<PeerInfo> peers;
  std::vector<int> node_of_rank;
  int node_count = 1;
  int rank = 0;
  bool memory_is_readable = true;      // cross-memory attach works everywhere
  bool more_ranks_than_cores = false;  // on this node
  bool splits_a_host = false;  // ranks of one network and kernel that cannot share memory: users, containers
  bool has_fast_network = false;  // on all nodes
  bool uses_ofi = false;          // altorch selects MPICH's netmod ofi; the same on all ranks
  std::string interface;          // towards the other nodes; empty on one node, and when it is not known

  int size() const { return static_cast<int>(peers.size()); }
};

// Collective: all ranks meet once more, so that no rank enters MPI_Init alone. Throws
// Error(kUnsupported), on all ranks alike, if /dev/shm is too small on a node; Error(kTimeout) if a
// rank has gone.
Topology topology_of(const BootstrapOptions& options, const PeerTable& table);

}  // namespace altorch
