// What ranks of other nodes that are missed are at: asked by somebody of their node (late_answers.h), and read in the job's store.
//
// All ranks of a group miss the same one at a time. They are counted there; who is the first has it told, over the connections
// between nodes, and the others wait for the same answer, or for one that is found after they have asked. Costs the store a few
// requests of each, and nothing where nobody is missed. Thread rules: one thread.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "common/wait_clock.h"
#include "observe/job_watch.h"

namespace altorch {

class FarRanks {
 public:
  // In the group `key`; so many ranks at the most, and nothing is asked of the store behind `deadline`.
  FarRanks(const JobWatch& watch, std::string key, std::size_t most, WaitClock::time_point deadline);

  // `rank` in the group, `global_rank` in the job. Where the store does not answer nobody is asked, nor waited for; nor is who is of
  // a node that did not answer a while ago.
  void ask(int rank, int global_rank);
  // Adds what they say, by rank in the group, as far as it comes in time.
  void hear(std::map<int, std::string>& words);

 private:
  struct Asked {
    int rank;
    LateQuestion question;
    std::int64_t number;  // of those who have asked, counted from 1
    bool told = false;    // that it is asked for
  };
  const std::string& node_of(const Asked& asked) const;
  // Whether nothing more is to come.
  bool look(Asked& asked, std::map<int, std::string>& words, bool is_late);

  const JobWatch& watch_;
  KeyValueStore& store_;
  const std::string key_;
  const std::size_t most_;
  const WaitClock::time_point deadline_;
  std::vector<Asked> asked_;
  bool is_lost_ = false;  // the store
};

}  // namespace altorch
