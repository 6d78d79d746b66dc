// SPDX-License-Identifier: BSD-3-Clause
#include "runtime/watchdog_store.h"

#include <algorithm>

#include "rendezvous/retrying_store.h"

namespace altorch {

WatchdogStore::WatchdogStore(Communicator& communicator, const Operation& operation,
                             std::chrono::milliseconds at_least)
    : StoreView(communicator.store()),
      communicator_(communicator),
      asked_(operation),
      operation_(operation),
      wait_(communicator.watchdog().begin_wait(operation)) {
  operation_.timeout = std::max(operation_.timeout, at_least);
  if (!operation_.is_message()) return;
  operation_.root = kAnySource;                       // all ranks have to come, not the peer alone
  operation_.timeout = std::chrono::hours(24 * 365);  // get() has a deadline, whose words fit
}

void WatchdogStore::check_peers() {
  Watchdog& watchdog = communicator_.watchdog();
  const auto now = std::chrono::steady_clock::now();
  const int looks = wait_.looks;
  if (auto found = watchdog.look_after(operation_, wait_, now)) throw *found;
  if (!asked_.is_message() || wait_.looks == looks || !watchdog.is_time_to_compare(wait_, now)) return;
  if (auto found = watchdog.compare_message(asked_)) throw *found;
}

std::string WatchdogStore::get(const std::string& key, std::chrono::milliseconds timeout) {
  const auto deadline = WaitClock::now() + timeout;
  PollPause pause(communicator_.size(), deadline);
  while (true) {
    try {
      if (auto value = try_request([&] { return try_get(key); })) return *std::move(value);
    } catch (const Error& error) {
      throw communicator_.watchdog().with_its_reason(error);
    }
    check_peers();
    if (WaitClock::now() > deadline) {
      throw Error(ErrorKind::kTimeout, "not there after " + std::to_string(timeout.count()) +
                                           " ms; all ranks of a group have to make its first calls of a kind "
                                           "together, messages included. Find the rank that is late");
    }
    pause.pause([this] { check_peers(); });
  }
}

}  // namespace altorch
