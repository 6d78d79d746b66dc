// SPDX-License-Identifier: BSD-3-Clause
// Queries to ranks that have left an operation in which other ranks still wait: they may be in a
// later call, or in another group. A stalled rank asks all ranks of the job. Each rank that waits
// in any call answers for all its groups. Thread rules: any thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "health/desync_board.h"
#include "rendezvous/key_value_store.h"
#include "rendezvous/poll_pause.h"

namespace altorch {

class DesyncQueries {
 public:
  // `store`: the job's store. `ranks`: the size of the job.
  explicit DesyncQueries(std::shared_ptr<KeyValueStore> store, int ranks = 1)
      : store_(std::move(store)), pace_(calm_pace(ranks)) {}

  void join(const std::shared_ptr<DesyncBoard>& board);
  void ask(const std::string& group, const CallNote& note);
  // Answers new queries. Reads the store at most once a second, less often in a job of thousands of
  // ranks.
  void answer();

 private:
  std::shared_ptr<KeyValueStore> store_;
  const std::chrono::milliseconds pace_;
  std::mutex mutex_;
  std::map<std::string, std::weak_ptr<DesyncBoard>> boards_;
  std::int64_t next_ = 0;
  int unwritten_ = 0;  // how often the next query was counted, but not there yet
  WaitClock::time_point last_look_{};
};

}  // namespace altorch
