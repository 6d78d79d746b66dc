// SPDX-License-Identifier: BSD-3-Clause
// Questions to ranks that have passed an operation which others still wait in, and that are busy elsewhere:
// in a later call, or in another group. A stalled rank asks the whole job, and every rank that waits in
// anything answers for all its groups. Thread rules: any thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "health/stall_board.h"
#include "rendezvous/key_value_store.h"
#include "rendezvous/poll_pause.h"

namespace altorch {

class Inquiries {
 public:
  // `store` is the job's, of so many ranks.
  explicit Inquiries(std::shared_ptr<KeyValueStore> store, int ranks = 1)
      : store_(std::move(store)), pace_(calm_pace(ranks)) {}

  void join(const std::shared_ptr<StallBoard>& board);
  void ask(const std::string& group, const CallNote& note);
  // Looks for new questions, at most once a second; more rarely in a job of thousands.
  void answer();

 private:
  std::shared_ptr<KeyValueStore> store_;
  const std::chrono::milliseconds pace_;
  std::mutex mutex_;
  std::map<std::string, std::weak_ptr<StallBoard>> boards_;
  std::int64_t next_ = 0;
  int unwritten_ = 0;  // looks at which the next question was counted, but not there
  WaitClock::time_point last_look_{};
};

}  // namespace altorch
