// SPDX-License-Identifier: BSD-3-Clause
#include "health/stuck_calls.h"

#include <unistd.h>

#include <atomic>
#include <utility>

namespace altorch {

bool StuckCalls::look(const KnownDeaths& watch, Clock::time_point now) {
  if (now - last_ < kBetweenLooks) return false;
  last_ = now;
  std::map<ForeignCall::Call, int> seen;
  bool stuck = false;
  for (const ForeignCall::Call& call : ForeignCall::all()) {
    const auto& [its_watch, rank] = call.peer;
    if (its_watch && !(its_watch == &watch && watch.is_dead(rank))) continue;
    const auto before = seen_.find(call);
    const int times = before == seen_.end() ? 1 : before->second + 1;
    stuck |= times >= kLooks;
    seen.emplace(call, times);
  }
  seen_ = std::move(seen);
  return stuck;
}

void end_stuck_process(int rank, const std::string& lost) {
  const auto seconds = StuckCalls::kLooks * StuckCalls::kBetweenLooks / std::chrono::seconds(1);
  const std::string message =
      "altorch: global rank " + std::to_string(rank) + " has not returned from a call of MPI for " +
      std::to_string(seconds) + " s, since " + lost +
      ". Open MPI 4 can lock itself up when a peer dies, and MPICH over TCP may try to connect to "
      "it without end. The call cannot be interrupted, so this process exits. Start the job again; "
      "Gloo (ALTORCH_MPI=none) returns an error.\n";
  static std::atomic_flag said;  // by another monitor of this process
  if (!said.test_and_set() && write(STDERR_FILENO, message.data(), message.size()) < 0) {
    // The message is lost, and there is no other place for it.
  }
  _exit(1);
}

}  // namespace altorch
