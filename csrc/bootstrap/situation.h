// What the ranks' cards say about the job as a whole, seen from one rank.
#pragma once

#include <string>
#include <vector>

#include "bootstrap/bootstrap.h"
#include "bootstrap/cards.h"

namespace altorch {

struct Situation {
  std::string job;     // CardTable::job
  std::string prefix;  // of this job's keys in the store
  std::vector<RankCard> cards;
  std::vector<int> node_of_rank;
  int node_count = 1;
  int rank = 0;
  bool memory_is_readable = true;      // cross-memory attach works everywhere
  bool more_ranks_than_cores = false;  // on this node
  std::string interface;               // towards the other nodes; empty on one node, and when it is not known

  int size() const { return static_cast<int>(cards.size()); }
};

// Meets the other ranks once more, so that nobody enters MPI_Init alone. Throws Error(kUnsupported), on all
// ranks alike, when /dev/shm is too small somewhere; Error(kTimeout) when a rank has gone.
Situation survey(const BootstrapOptions& options, const CardTable& table);

}  // namespace altorch
