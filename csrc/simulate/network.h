// SPDX-License-Identifier: BSD-3-Clause
// The network of a simulation: nodes with as many ranks each, and what a message costs.
#pragma once

#include <cstdint>

namespace altorch {

// The alpha-beta-gamma model with one port for each node. A message between nodes takes alpha +
// bytes * max(beta, rank_beta) seconds, a message on a node on_node_alpha + bytes * on_node_beta. A
// rank sends one message and receives one at a time. The port of a node carries one byte in beta
// seconds in each direction, for all its ranks together. Times are seconds. Plain data: any thread.
struct Network {
  int nodes = 1, per_node = 1;  // ranks of a node; ranks fill one node after another
  double alpha = 2e-6, beta = 1 / 25e9, rank_beta = 1 / 25e9;
  double on_node_alpha = 1e-6, on_node_beta = 1 / 10e9;  // of messages between ranks of a node
  double gamma = 5e-11;                                  // s for each byte reduced
  double call = 4e-6;            // s of a call outside of the engine: Python, torch's dispatch
  double store_request = 20e-6;  // s that the store takes for a request

  int ranks() const { return nodes * per_node; }
  int node_of(int rank) const { return rank / per_node; }
  // Throws Error(kInvalidArgument): fewer than 1 node or rank, more ranks than the limits, times
  // that are negative, infinite, or of more than a second (a byte, a message).
  void check() const;

  static constexpr int kMostRanks = 1 << 17, kMostPerNode = 1024;
};

}  // namespace altorch
