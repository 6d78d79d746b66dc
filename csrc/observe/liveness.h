// Which processes of the job are alive, asked outside MPI: a killed peer makes every MPI wait for ever.
//
// Processes of one node are watched through pidfds, which never name another process. Who sees a death on its
// node writes it into the store, where ranks on other nodes find it. Thread rules: any thread.
#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "common/key_value_store.h"

namespace altorch {

class Liveness {
 public:
  // Collective over the job: every rank publishes its process and reads the others'.
  Liveness(std::shared_ptr<KeyValueStore> store, int rank, int size, std::chrono::milliseconds timeout);
  ~Liveness();
  Liveness(const Liveness&) = delete;

  // The first of these ranks (of the job) that is known to be dead, with a phrase that says how it is known.
  struct Death {
    int rank;
    std::string evidence;
  };
  std::optional<Death> check(std::span<const int> ranks, bool ask_store);

 private:
  struct Peer {
    long pid = 0;
    int pidfd = -1;  // -1: on another node, or not to be had
    bool dead = false;
    bool announced = false;
  };
  std::shared_ptr<KeyValueStore> store_;
  std::mutex mutex_;
  std::vector<Peer> peers_;
};

}  // namespace altorch
