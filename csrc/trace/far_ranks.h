// SPDX-License-Identifier: BSD-3-Clause
// Asks for the current calls of missing ranks on other nodes. A process of their node answers
// (late_answers.h) through the job's store.
//
// All ranks of a group miss the same rank at the same time. A counter in the store tells the first
// of them, which sends the question over the connections between nodes; its peers wait for the same
// answer. Costs each of them a few requests to the store, and none while no rank is missing. Thread
// rules: one thread.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "base/wait_clock.h"
#include "trace/job_watch.h"

namespace altorch {

class FarRanks {
 public:
  // Asks on behalf of the group `key`, about `most` ranks at most. Makes no request to the store
  // after `deadline`.
  FarRanks(const JobWatch& watch, std::string key, std::size_t most, WaitClock::time_point deadline);

  // `rank` in the group, `global_rank` in the job. Does nothing if the store does not answer, or if
  // the rank's node left a question unanswered a while ago.
  void ask(int rank, int global_rank);
  // Adds the answers that come in time, by rank in the group.
  void hear(std::map<int, std::string>& texts);

 private:
  struct Asked {
    int rank;
    LateQuestion question;
    std::int64_t number;  // this rank's place among those that asked, from 1
    bool told = false;    // this rank has sent the question
  };
  const std::string& node_of(const Asked& asked) const;
  // Looks for the answer, and sends the question if that is this rank's turn. True if the answer
  // has come.
  bool look(Asked& asked, std::map<int, std::string>& texts, bool is_late);

  const JobWatch& watch_;
  KeyValueStore& store_;
  const std::string key_;
  const std::size_t most_;
  const WaitClock::time_point deadline_;
  std::vector<Asked> asked_;
  bool is_lost_ = false;  // the store does not answer
};

}  // namespace altorch
