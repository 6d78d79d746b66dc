// SPDX-License-Identifier: BSD-3-Clause
// The members of a group: what a transport links, and what the group itself starts with.
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "rendezvous/key_value_store.h"
#include "rendezvous/peer_deaths.h"

namespace altorch {

struct JobWatch;  // trace/job_watch.h

// The same on all ranks, except for `rank`, `store`, `watch` and `deaths`.
struct Membership {
  std::string name;                      // of the group, for messages
  std::vector<int> global_ranks;         // by rank: ranks in the job, as its current first group numbers them
  std::shared_ptr<KeyValueStore> store;  // for the group's keys
  std::shared_ptr<JobWatch> watch;       // watches the processes of the job; may be null
  int rank = 0;                          // of this process
  bool is_job = false;                   // the job's first group, or the survivors of it
  bool is_apart = false;         // not ranks of one current job: global_ranks are numbers of this group alone
  std::vector<int> before = {};  // survivors only: global_ranks as they were numbered until now
  std::string key = {};          // of this group alone, also among earlier groups of the same name
  std::chrono::milliseconds timeout{0};            // for making the group
  std::shared_ptr<const KnownDeaths> deaths = {};  // what `watch` knows; null without it

  PeerDeaths peer_deaths() const { return {global_ranks, deaths}; }
  int size() const { return static_cast<int>(global_ranks.size()); }
};

}  // namespace altorch
