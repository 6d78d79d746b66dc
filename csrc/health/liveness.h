// SPDX-License-Identifier: BSD-3-Clause
// Which processes of the job are alive. MPI cannot tell: with a killed peer, every MPI waits for
// ever.
//
// A thread (al-liveness) sleeps until a process ends. It watches the processes of its node through
// pidfds, which never name another process, and other nodes through connections (node_links.h). It
// marks a death for check(), and adds it to a numbered list in the store. So ranks of other nodes
// ask for one key, however many ranks there are. A stopped process is not dead, nor is one that has
// released its groups, while it runs. Thread rules: any thread. In a forked child no rank is known
// to be dead.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "health/late_question.h"
#include "health/process_id.h"
#include "rendezvous/key_value_store.h"
#include "rendezvous/peer_deaths.h"

namespace altorch {

class LivenessMonitor;

struct LivenessSettings {
  std::string name = {};                      // of the watch: the same on all its ranks, and unique to it
  std::shared_ptr<KeyValueStore> store = {};  // keys of the job; asked by check()
  std::shared_ptr<KeyValueStore> retrying =
      {};                                 // the same keys, for the thread, which has time; null: `store`
  int rank = 0;                           // of this process in the job
  std::map<int, ProcessId> members = {};  // the processes to watch, by their rank in the job
  std::string address = {};               // of this host, on the route to the master; may be empty
  std::string master = {};                // host of the store; may be empty
  // Called on al-liveness, for each question of another node about a process of this node. Must not
  // wait. May be null.
  std::function<void(const LateQuestion&, long pid)> asked = {};
};

class Liveness {
 public:
  explicit Liveness(LivenessSettings settings);
  // Ends the watch after wait_until_reported().
  ~Liveness();
  Liveness(const Liveness&) = delete;

  // The first of these ranks (of the job) that is known to be dead, with a phrase that says how it
  // is known. What it has sent may still arrive: look again before a call fails, after 100 ms, or
  // after 400 ms if it was on another node.
  // `ask_store`: also asks the store, if there are processes on other nodes; waits for the answer,
  // and ignores errors. Nothing in a forked child.
  struct Death {
    int rank;
    std::string evidence;
    bool is_far;  // on another node
  };
  std::optional<Death> check(std::span<const int> ranks, bool ask_store);
  std::shared_ptr<const KnownDeaths> known_deaths() const;
  // Whether some members are on other nodes than this process.
  bool has_far_members() const;
  // Sends the question to a process of that rank's node, if one can be reached. Does not wait.
  void ask(const LateQuestion& question) const;

  // If there are other nodes, waits until al-liveness has told them of every death up to now, for
  // at most 1 s. It does so through the store, which must stay open until then.
  void wait_until_reported() const;

  // What is known without a request, for reports.
  const LivenessSettings& settings() const;
  std::map<int, std::string> deaths() const;  // by rank, with the evidence

 private:
  const std::shared_ptr<LivenessMonitor> monitor_;  // its thread holds it too
  const long process_;
};

}  // namespace altorch
