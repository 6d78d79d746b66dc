// SPDX-License-Identifier: BSD-3-Clause
// Datagrams between the processes of one node. A process tells its neighbours of each death that it
// notices. From the leader, which is linked to other nodes (node_links.h), they learn of deaths
// there even if the store has died, too. They send it their questions about ranks of other nodes.
// The sockets are abstract Unix sockets, which end with their processes; datagrams of processes
// that are not members are ignored. Thread rules: one thread, the liveness monitor's.
#pragma once

#include <vector>

#include "health/late_question.h"
#include "health/liveness.h"

namespace altorch {

class NodeEvents {
 public:
  // Receives from now on, if the job has other nodes and the socket can be made.
  explicit NodeEvents(const LivenessSettings& settings);
  ~NodeEvents();
  NodeEvents(const NodeEvents&) = delete;

  int socket() const { return socket_; }  // for poll(); -1: none
  // Tells all neighbours that `rank` is dead.
  void tell(int rank) noexcept;
  // Sends the question to one neighbour.
  void pass_on(const LateQuestion& question, int neighbour) noexcept;
  struct Received {
    std::vector<int> deaths;
    std::vector<LateQuestion> questions;
  };
  Received receive() noexcept;

 private:
  void send_to(int neighbour, const void* message, std::size_t bytes) noexcept;

  const LivenessSettings& settings_;
  std::vector<int> neighbours_;
  int socket_ = -1;
};

}  // namespace altorch
