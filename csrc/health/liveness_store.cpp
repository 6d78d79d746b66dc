// SPDX-License-Identifier: BSD-3-Clause
#include "health/liveness_store.h"

#include "base/error.h"
#include "base/interrupt.h"
#include "rendezvous/poll_pause.h"
#include "rendezvous/retrying_store.h"

namespace altorch {
namespace {

constexpr std::chrono::milliseconds kBetweenLooks{100};
constexpr int kLooksPerQuestion = 10;  // to the store

}  // namespace

void LivenessStore::check_peers() {
  Interruptible::check();
  if (const auto error = signals_.look()) throw *error;
  const auto now = WaitClock::now();
  if (!liveness_ || now < next_look_) return;
  next_look_ = now + kBetweenLooks;
  const auto death = liveness_->check(ranks_, ++looks_ % kLooksPerQuestion == 0 || suspicion_);
  // Twice, for a rank that has done its part may end: what it has left is found between the two
  // looks.
  const bool twice = suspicion_ && death;
  suspicion_ = death.has_value();
  if (!twice) return;
  throw Error(ErrorKind::kPeerLost, "global rank " + std::to_string(death->rank) +
                                        " is lost: " + death->evidence +
                                        "; look for its error above, then start the job again");
}

std::string LivenessStore::get(const std::string& key, std::chrono::milliseconds timeout) {
  const auto deadline = WaitClock::now() + timeout;
  PollPause pause(static_cast<int>(ranks_.size()), deadline);
  while (true) {
    if (auto value = try_request([&] { return try_get(key); })) return *std::move(value);
    check_peers();
    if (WaitClock::now() > deadline)
      throw Error(ErrorKind::kTimeout, "the key '" + key + "' did not appear in the store within " +
                                           std::to_string(timeout.count()) + " ms");
    pause.pause([this] { check_peers(); });
  }
}

}  // namespace altorch
