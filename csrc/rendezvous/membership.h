// SPDX-License-Identifier: BSD-3-Clause
// Who is in a group: what a transport links, and what the group itself starts with.
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "rendezvous/key_value_store.h"

namespace altorch {

struct JobWatch;  // observe/job_watch.h

// Alike on all ranks, but for `rank`, `store` and `watch`.
struct Membership {
  std::string name;                      // of the group, for messages
  std::vector<int> global_ranks;         // by rank: in the job, as its first group of today numbers them
  std::shared_ptr<KeyValueStore> store;  // of the group's keys
  std::shared_ptr<JobWatch> watch;       // over the job; may be null
  int rank = 0;                          // of this process
  bool is_job = false;                   // the job's first group, of this life, or what is left of it
  bool is_apart = false;         // not of one job of today: global_ranks are numbers of this group alone
  std::vector<int> before = {};  // what is left of it: global_ranks, as they were numbered until now
  std::string key = {};          // no other group's, of this life or another
  std::chrono::milliseconds timeout{0};  // of what makes the group

  int size() const { return static_cast<int>(global_ranks.size()); }
};

}  // namespace altorch
