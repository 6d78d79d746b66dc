// Requests of somebody who has a deadline of his own: that the store does not answer for a while is no
// failure to him yet.
#pragma once

#include <string>

#include "common/absent.h"
#include "common/error.h"
#include "common/key_value_store.h"
#include "common/poll_pause.h"

namespace altorch {

// A request that may be repeated; nothing when the store did not answer in time.
template <typename Request>
auto if_it_answers(Request&& request) -> decltype(request()) {
  try {
    return request();
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::kTimeout) throw;
    return {};
  }
}

// A set() or an add() whose result nobody needs: what is late is carried out all the same.
template <typename Request>
void sooner_or_later(Request&& request) {
  try {
    request();
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::kTimeout) throw;
  }
}

// What `look` finds sooner or later, an optional; one of `ranks` that look. Throws Error(kTimeout), and what store.attend()
// throws.
template <typename Look>
auto wait_until_there(KeyValueStore& store, int ranks, std::chrono::milliseconds timeout, Look&& look) {
  const auto deadline = WaitClock::now() + timeout;
  const std::string somebody_is_late = "find the rank that is late or took another path";
  PollPause pause(ranks, deadline);
  while (true) {
    std::string cause = somebody_is_late;
    try {
      if (auto found = look()) return *std::move(found);
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::kTimeout) throw;
      cause = error.what();  // it is the store that is late
    }
    store.attend();
    if (WaitClock::now() > deadline)
      throw Error(ErrorKind::kTimeout, "not there after " + in_seconds(timeout) + "; " + cause);
    pause.pause([&] { store.attend(); });
  }
}

}  // namespace altorch
