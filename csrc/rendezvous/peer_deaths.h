// SPDX-License-Identifier: BSD-3-Clause
// Which ranks of a group are known to be dead. Thread rules: any thread.
#pragma once

#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

namespace altorch {

// What the watch of a job knows: LivenessMonitor (health/liveness_monitor.h).
class KnownDeaths {
 public:
  virtual ~KnownDeaths() = default;
  // Cheap, for a question before each message.
  virtual bool is_dead(int job_rank) const = 0;
};

class PeerDeaths {
 public:
  PeerDeaths() = default;
  // `job_ranks`: by rank of the group. `watch`: null if no process is watched.
  PeerDeaths(std::vector<int> job_ranks, std::shared_ptr<const KnownDeaths> watch)
      : job_ranks_(std::move(job_ranks)), watch_(std::move(watch)) {}

  bool include(int rank) const { return watch_ && watch_->is_dead(job_rank(rank)); }
  int job_rank(int rank) const { return job_ranks_[static_cast<std::size_t>(rank)]; }
  // To be compared by address: two watches of a process may give different ranks the same number.
  const KnownDeaths* watch() const { return watch_.get(); }

 private:
  std::vector<int> job_ranks_;
  std::shared_ptr<const KnownDeaths> watch_;
};

}  // namespace altorch
