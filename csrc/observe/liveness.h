// Which processes of the job are alive, asked outside MPI: a killed peer makes every MPI wait for ever.
//
// Processes of one node are watched through pidfds, which never name another process. Who sees a death on its
// node tells it in the store, as one of a numbered list, so that ranks on other nodes ask for one key however
// many ranks there are. Thread rules: any thread.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>

#include "common/key_value_store.h"
#include "observe/process_card.h"

namespace altorch {

class Liveness {
 public:
  // `members`: the processes to watch, by their rank in the job; `rank`: this one. `store`: keys of the job.
  Liveness(std::shared_ptr<KeyValueStore> store, int rank, const std::map<int, ProcessCard>& members);
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
    int pidfd = -1;        // -1: on another node, or not to be had
    std::string evidence;  // of its death; empty while it lives
  };
  void tell(int rank);
  void hear();

  std::shared_ptr<KeyValueStore> store_;
  std::mutex mutex_;
  std::map<int, Peer> peers_;
  bool has_far_peers_ = false;
  std::int64_t heard_ = 0;  // of the list in the store
};

}  // namespace altorch
