// SPDX-License-Identifier: BSD-3-Clause
#include "rendezvous/commit_decision.h"

#include "base/error.h"
#include "base/number.h"
#include "rendezvous/absent.h"
#include "rendezvous/poll_pause.h"
#include "rendezvous/retrying_store.h"

namespace altorch {
namespace {

constexpr std::chrono::seconds kToWrite{5};  // after the timeout, for the decision to arrive

// A decision as it is written: kCommit, or kAbort and the reason.
constexpr char kCommit[] = "made", kAbort = '!';

}  // namespace

std::string decide_commit(KeyValueStore& store, const std::string& key, int rank, int size,
                          std::chrono::milliseconds timeout, const std::string& abort_reason) {
  if (size == 1) return abort_reason;
  const auto deadline = WaitClock::now() + timeout;
  bool has_decided = false;
  const auto decide = [&](const std::string& decision) {
    if (has_decided) return;
    has_decided = true;
    post_request([&] { store.set_once(key + "/decision", decision); });
  };
  if (abort_reason.empty()) {
    post_request([&] { store.add(key + "/count", 1); });
  } else {
    decide(kAbort + ("rank " + std::to_string(rank) + ": " + abort_reason));
  }
  PollPause pause(size, deadline + kToWrite);
  while (true) {
    if (const auto decision = try_request([&] { return store.try_get(key + "/decision"); }))
      return *decision == kCommit ? "" : decision->substr(1);
    if (rank == 0 && !has_decided) {
      const auto count = try_request([&] { return store.try_get(key + "/count"); });
      if (count && number_from<std::int64_t>(*count, "how many ranks are done") >= size) decide(kCommit);
    }
    try {
      store.check_peers();
    } catch (const Error& error) {
      decide(kAbort + std::string(error.what()));
    }
    const auto now = WaitClock::now();
    if (now > deadline)
      decide(kAbort +
             ("rank " + std::to_string(rank) + " has waited for the others for " + in_seconds(timeout)));
    if (now > deadline + kToWrite) {
      throw Error(ErrorKind::kTimeout,
                  "no decision has come within " + in_seconds(timeout) + ": is the store's host stopped?");
    }
    pause.pause();
  }
}

}  // namespace altorch
