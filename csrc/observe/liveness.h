// SPDX-License-Identifier: BSD-3-Clause
// Which processes of the job are alive, asked outside MPI: a killed peer makes every MPI wait for ever.
//
// A thread (al-liveness) sleeps until a process ends: those of its node it watches through pidfds, which
// never name another process, those of other nodes through connections (node_links.h). What it sees it marks
// for check(), and tells in the store, as one of a numbered list, so that ranks elsewhere ask for one key
// however many ranks there are. A process that is stopped is not dead, nor one that let its groups go. Thread
// rules: any thread. In a forked child nobody is known to be dead.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "rendezvous/key_value_store.h"
#include "observe/late_question.h"
#include "observe/process_id.h"

namespace altorch {

class LivenessMonitor;

struct LivenessSettings {
  std::string name = {};                      // of the watch, the same on all its ranks; no other's
  std::shared_ptr<KeyValueStore> store = {};  // keys of the job; asked by check()
  std::shared_ptr<KeyValueStore> patient =
      {};                                 // the same keys, for the thread, which has time; null: `store`
  int rank = 0;                           // of this process in the job
  std::map<int, ProcessId> members = {};  // the processes to watch, by their rank in the job
  std::string address = {};               // of this host, on the route to the master; may be empty
  std::string master = {};                // host of the store; may be empty
  // Told, on the thread, of questions from other nodes about a process of this one; must not wait. May be null.
  std::function<void(const LateQuestion&, long pid)> asked = {};
};

class Liveness {
 public:
  explicit Liveness(LivenessSettings settings);
  ~Liveness();
  Liveness(const Liveness&) = delete;

  // The first of these ranks (of the job) that is known to be dead, with a phrase that says how it is known.
  // `ask_store`: one request, where there are processes that are not watched from here.
  struct Death {
    int rank;
    std::string evidence;
  };
  std::optional<Death> check(std::span<const int> ranks, bool ask_store);
  // Whether some of them are in other nodes than this process.
  bool has_far_members() const;
  // Sends the question to a process of that rank's node, if one can be reached. Does not wait.
  void ask(const LateQuestion& question) const;

  // What is known without asking anybody, for who reports it.
  const LivenessSettings& settings() const;
  std::map<int, std::string> deaths() const;  // by rank, with the evidence

 private:
  const std::shared_ptr<LivenessMonitor> monitor_;  // its thread holds it too
  const long process_;
};

}  // namespace altorch
