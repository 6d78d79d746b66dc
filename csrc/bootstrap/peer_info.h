// SPDX-License-Identifier: BSD-3-Clause
// What each rank tells all other ranks before any rank calls MPI_Init. MPI_Init waits without end
// for a rank that does not come, so no rank may enter it before all ranks have said that they can.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "bootstrap/probes.h"
#include "rendezvous/key_value_store.h"

namespace altorch {

// How a rank would get its MPI.
enum class StartMode {
  kBootstrap,  // through altorch
  kLauncher,   // through the launcher that started the process
  kExisting,   // other code in this process has called MPI_Init already
  kRunning,    // altorch started it earlier, for another process group
};

struct PeerInfo {
  std::string problem;  // why this rank cannot use MPI; empty when it can
  StartMode mode = StartMode::kBootstrap;
  std::string version;  // of the MPI library; must be the same everywhere
  std::string job;      // kRunning: name of the job that MPI runs as
  std::string node;     // same_node_key()
  MemoryProbe memory;
  std::uint64_t free_shared_memory = 0;
  std::string address;  // on the route to the master; empty when unknown
  bool address_is_loopback = true;
  std::string cores;              // usable_cores()
  std::string network;            // host_namespace("net")
  bool has_fast_network = false;  // its node: platform/fabric.h
  bool allows_ofi = false;        // its MPICH has ucx and ofi, and altorch may choose: may_choose_netmod()
};

std::string encode(const PeerInfo& peer);
PeerInfo decode_peer_info(const std::string& text);  // throws Error(kInternal) on anything else

struct PeerTable {
  std::string job;  // a name that rank 0 has drawn at random, new in every exchange
  std::vector<PeerInfo> peers;
};

// Every rank calls it with fresh keys under `prefix`. Throws Error(kTimeout) naming the ranks that
// did not come.
PeerTable exchange_peer_info(const PeerInfo& own, int rank, int size, KeyValueStore& store,
                             const std::string& prefix, std::chrono::milliseconds timeout);

// A barrier that carries one bit: true on every rank when `ok` was true on every rank.
bool all_agree(bool ok, int size, KeyValueStore& store, const std::string& key,
               std::chrono::milliseconds timeout);

// Index of the node of each rank, in order of first appearance.
std::vector<int> number_nodes(const std::vector<std::string>& node_keys);

}  // namespace altorch
