// SPDX-License-Identifier: BSD-3-Clause
// The thread behind Liveness, and what it knows.
#pragma once

#include <poll.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <span>
#include <vector>

#include "health/death_list.h"
#include "health/liveness.h"
#include "health/node_events.h"
#include "health/node_links.h"
#include "health/stuck_calls.h"

namespace altorch {

class LivenessMonitor : public KnownDeaths {
 public:
  explicit LivenessMonitor(LivenessSettings settings);
  ~LivenessMonitor() override;
  LivenessMonitor(const LivenessMonitor&) = delete;

  bool has_peers() const { return settings_.members.size() > 1; }
  bool has_far_members() const { return has_far_members_; }
  const LivenessSettings& settings() const { return settings_; }
  std::map<int, std::string> deaths() const;
  bool has_deaths() const { return count_.load(std::memory_order_acquire) > 0; }
  bool is_dead(int job_rank) const override;
  std::optional<Liveness::Death> check(std::span<const int> ranks, bool ask_store);
  // Any thread. Does not wait: the thread passes it on.
  void ask(const LateQuestion& question);
  // The thread; returns after stop().
  void run();
  // Any thread. Does not wait: the thread says goodbye to other nodes and ends.
  void stop();
  // Any thread. Waits until the thread has looked once more, and has reported what it saw, or until
  // `timeout` has passed. Does not wait if there is no other node.
  void wait_until_reported(std::chrono::milliseconds timeout);

 private:
  struct Watched {
    int rank;
    int pidfd;
  };
  void watch_neighbours();
  void wake();
  std::string has_ended(int rank) const;  // evidence
  std::string lost() const;               // a clause that names a lost rank; there is one
  void mark(int rank, const std::string& evidence);
  // The neighbours and the other nodes at once, then the store.
  void tell(std::span<const int> ranks);
  void finish_look(std::int64_t asked);
  void hear();
  void hear_news();
  void hear_links();
  void pass_on(const LateQuestion& question);
  void pass_on_what_was_asked();

  const LivenessSettings settings_;
  const long process_;
  const std::string node_;
  int leader_ = 0;  // of this node: the one that is linked to others
  bool has_far_members_ = false;
  std::vector<Watched> watched_;   // the thread's own
  std::vector<int> ended_before_;  // likewise: neighbours that had ended when the watch began
  NodeLinks links_;                // likewise
  NodeEvents events_;              // likewise
  StuckCalls stuck_calls_;         // likewise
  std::chrono::steady_clock::time_point noticed_{};  // when the thread last noticed deaths
  DeathList told_;
  std::mutex hearing_;  // guards heard_, while the store is asked
  DeathList heard_;
  int wake_ = -1;  // an eventfd
  std::atomic<bool> stopping_{false};
  std::atomic<int> count_{0};                 // of deaths
  std::atomic<std::int64_t> looks_asked_{0};  // by wait_until_reported()
  mutable std::mutex mutex_;                  // a leaf; guards what follows
  std::map<int, std::string> deaths_;
  std::int64_t looks_done_ = 0;  // up to which look that was asked for
  std::condition_variable has_looked_;
  std::vector<LateQuestion> asked_;  // of this process, and not on their way yet
};

}  // namespace altorch
