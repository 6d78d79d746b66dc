// SPDX-License-Identifier: BSD-3-Clause
// Why a call that is under way cannot end, if that is known: a deadline, a dead peer, ranks that called
// different things. The one copy for collectives and messages, on the host and on a device.
//
// Whoever carries a call asks again and again; most questions cost a look at the clock. Thread rules: any
// thread; those about one wait by one thread at a time.
#pragma once

#include <chrono>
#include <optional>

#include "engine/group.h"
#include "engine/task.h"

namespace altorch {

class Watchdog {
 public:
  using Clock = std::chrono::steady_clock;

  explicit Watchdog(Group& group);

  Wait begin_wait(const Operation& operation) const;
  // Once more, with the deadline of before.
  Wait begin_again(const Operation& operation, const Wait& before) const;
  // Looks at the clock alone.
  std::optional<Error> overdue(const Operation& operation, const Wait& wait, Clock::time_point now) const;
  // Looks now and then; a closed group does not count.
  std::optional<Error> examine(const Operation& operation, Wait& wait, Clock::time_point now);
  // The same, and a closed group ends it.
  std::optional<Error> look_after(const Operation& operation, Wait& wait, Clock::time_point now);
  // Looks at nothing but what the ranks called.
  std::optional<Error> compare(const Operation& operation, Wait& wait);
  // Whether the look that examine() has just taken was one at which stalled ranks compare: once a second, or more rarely where
  // they are thousands.
  bool is_time_to_compare(const Wait& wait, Clock::time_point now) const;
  // Looks at nothing but whether everybody lives, now and then.
  std::optional<Error> look_for_dead_only(const Operation& operation, Wait& wait, Clock::time_point now);
  // Of a message that waits: whether its other end is on another kind of device.
  std::optional<Error> compare_message(const Operation& operation);

  // The loss of a peer, if that is what lies behind an error of a transport or of the store. May take a
  // second.
  Error with_its_reason(const Error& cause);
  // What a peer that is lost has written down before, if that is why the call failed. `all_told`: whether some rank has told
  // all others; true already: nobody is asked.
  Error with_last_word(const Operation& operation, const Error& noticed, bool& all_told);
  // The call has failed: closes the group, and tells the peers unless one of them has told us.
  Error fail(const Operation& operation, const Error& noticed, const Wait& wait);

 private:
  std::optional<Error> look_for_dead(const Operation& operation, Wait& wait);
  std::optional<Error> closed_by_peer(const Operation& operation, Wait& wait);
  // Why a peer that is gone had given up.
  std::optional<Error> last_word(const Operation& operation, bool& all_told);

  Group& group_;
  const std::chrono::milliseconds stall_;
};

}  // namespace altorch
