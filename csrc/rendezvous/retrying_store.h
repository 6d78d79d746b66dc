// SPDX-License-Identifier: BSD-3-Clause
// Requests to a store that may answer late: try one, post one without waiting for its result, or
// poll until the caller's deadline. A store that does not answer in time is an error only when that
// deadline passes. Thread rules: those of the store.
#pragma once

#include <string>

#include "base/error.h"
#include "rendezvous/absent.h"
#include "rendezvous/key_value_store.h"
#include "rendezvous/poll_pause.h"

namespace altorch {

// Returns the result of `request`, or nothing if the store did not answer in time. The caller may
// call it again.
template <typename Request>
auto try_request(Request&& request) -> decltype(request()) {
  try {
    return request();
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::kTimeout) throw;
    return {};
  }
}

// A set() or add() whose result the caller does not need. If the store is late, it carries the
// request out later.
template <typename Request>
void post_request(Request&& request) {
  try {
    request();
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::kTimeout) throw;
  }
}

// Calls `look` until it returns a value, and returns that. `ranks`: how many ranks poll the store.
// Throws Error(kTimeout), and what store.check_peers() throws.
template <typename Look>
auto poll_until_found(KeyValueStore& store, int ranks, std::chrono::milliseconds timeout, Look&& look) {
  const auto deadline = WaitClock::now() + timeout;
  const std::string a_rank_is_late = "find the rank that is late or took another path";
  PollPause pause(ranks, deadline);
  while (true) {
    std::string cause = a_rank_is_late;
    try {
      if (auto found = look()) return *std::move(found);
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::kTimeout) throw;
      cause = error.what();  // it is the store that is late
    }
    store.check_peers();
    if (WaitClock::now() > deadline)
      throw Error(ErrorKind::kTimeout, "not there after " + in_seconds(timeout) + "; " + cause);
    pause.pause([&] { store.check_peers(); });
  }
}

}  // namespace altorch
