// SPDX-License-Identifier: BSD-3-Clause
// A process manager for one process, inside that process: speaks PMI-1 over a socket to MPI_Init of
// the MPICH family (or to flux/, for Open MPI 4), and keeps what MPI publishes in the rendezvous
// store.
//
// The thread is native, detached and outlives everything, because MPICH says goodbye from a C exit
// handler, when no Python thread may run any more. After detach_store() it answers without the
// store.
#pragma once

#include <chrono>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "rendezvous/key_value_store.h"

namespace altorch {

struct Pmi1Job {
  int rank = 0;
  int size = 1;
  // Must be new for every job and restart: MPICH derives names in /dev/shm from it. At most 63
  // characters.
  std::string name;
  std::vector<int> node_of_rank;
  std::string key_prefix;  // in the store
  std::chrono::milliseconds timeout{120000};
};

class Pmi1Server {
 public:
  // Starts the thread. `store` must live until detach_store().
  static std::shared_ptr<Pmi1Server> start(Pmi1Job job, KeyValueStore* store);

  // MPI's end of the socket, for PMI_FD. Never closed here.
  int client_fd() const { return client_fd_; }
  // Forgets the store, waiting for a request that is under way. To be called once MPI_Init has
  // returned.
  void detach_store();
  // Why a request failed (a peer that did not come in time), or empty.
  std::string failure();

 private:
  Pmi1Server(Pmi1Job job, KeyValueStore* store) : job_(std::move(job)), store_(store) {}
  void serve(int fd);
  // The reply to one line, or empty to close.
  std::string answer(const std::string& line);
  std::string put(const std::string& line);
  std::string get(const std::string& line);
  std::string barrier();
  std::string node_mates() const;
  void fail(const std::string& reason);  // holds mutex_

  Pmi1Job job_;
  std::mutex mutex_;  // of the store and failure_
  KeyValueStore* store_;
  std::string failure_;
  int barriers_ = 0;
  int client_fd_ = -1;
};

// The value of a key in a PMI-1 line, "" when it is missing: value_of("cmd=get key=a\n", "key") ==
// "a". A `value` runs to the end of the line.
std::string pmi1_field(const std::string& line, const std::string& key);

// PMI's PMI_process_mapping for a node index per rank: "(vector,(0,2,4))" is two nodes of four
// ranks each. Empty when it would pass the length that PMI allows.
std::string process_mapping(const std::vector<int>& node_of_rank);

}  // namespace altorch
