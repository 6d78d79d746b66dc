// SPDX-License-Identifier: BSD-3-Clause
// Starts altorch-pmix-server, one per node, for Open MPI 5 and later, and carries its fences over
// the store.
#pragma once

#include <chrono>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "rendezvous/key_value_store.h"

namespace altorch {

struct PmixOptions {
  std::string program;       // path of altorch-pmix-server
  std::string pmix_library;  // the libpmix that the MPI library uses
  std::string mpi_prefix;    // OPAL_PREFIX and PMIX_PREFIX for the helper; may be empty
  std::string job;
  int rank = 0;
  std::vector<int> node_of_rank;
  std::vector<int> process_of_rank;  // process ids; those of other nodes are not used
  std::string key_prefix;
  std::chrono::milliseconds timeout{120000};
};

// The first rank of a node starts the helper and, in a native detached thread, exchanges its fences
// with those of the other nodes; the others only learn their environment.
class PmixHelper {
 public:
  // Every rank calls it. Returns once the node's helper is ready. Throws Error(kUnsupported,
  // kTimeout).
  static std::shared_ptr<PmixHelper> start(const PmixOptions& options, KeyValueStore* store);

  // NAME=VALUE lines that this rank's MPI_Init needs.
  const std::vector<std::string>& environment() const { return environment_; }
  // Forgets the store: later fences are answered with this node's data alone.
  void detach_store();

 private:
  PmixHelper(const PmixOptions& options, KeyValueStore* store) : options_(options), store_(store) {}
  void launch();
  void publish_environments();
  void serve();
  std::string exchange(const std::string& own);

  PmixOptions options_;
  std::mutex mutex_;  // of store_
  KeyValueStore* store_;
  std::vector<std::string> environment_;
  int fd_ = -1;
  int fences_ = 0;
};

// Path of the library that holds PMIx_Init as the MPI library sees it, or empty.
std::string loaded_pmix_library();

}  // namespace altorch
