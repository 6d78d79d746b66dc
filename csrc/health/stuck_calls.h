// SPDX-License-Identifier: BSD-3-Clause
// Threads that do not come back from MPI after a rank is lost. When a write to that rank fails in
// MPI_Test, Open MPI 4 waits for a lock that the same thread holds. MPICH over TCP (ofi) tries to
// connect to a dead rank without end, in the first MPI_Isend to it. Nothing can interrupt the
// thread, so no error reaches the program, and no timeout ends the call. The process has to exit.
//
// Looks are counted, and not time: a process that was stopped for a while has made none meanwhile.
// They come late while the thread of LivenessMonitor reports a death to a slow store.
#pragma once

#include <chrono>
#include <map>
#include <string>

#include "platform/foreign_call.h"
#include "rendezvous/peer_deaths.h"

namespace altorch {

class StuckCalls {
 public:
  using Clock = std::chrono::steady_clock;
  static constexpr std::chrono::milliseconds kBetweenLooks{1000};
  static constexpr int kLooks = 10;

  // Whether a thread was in one call at kLooks looks. A call that may wait for a peer counts when
  // that peer is dead, as `watch` knows. To be called every kBetweenLooks; a look that comes sooner
  // does not count. One thread.
  bool look(const KnownDeaths& watch, Clock::time_point now = Clock::now());

 private:
  Clock::time_point last_{};
  std::map<ForeignCall::Call, int> seen_;
};

// Says on standard error which rank is in such a call, and why (`lost`, a clause), and ends the
// process by _exit(1).
[[noreturn]] void end_stuck_process(int rank, const std::string& lost);

}  // namespace altorch
