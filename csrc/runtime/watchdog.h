// SPDX-License-Identifier: BSD-3-Clause
// Finds out why a call in flight cannot end: its deadline has passed, a peer is dead, or the ranks
// called different operations. It serves collectives and messages, on the host and on a device.
//
// The thread that drives a call, or waits for it, asks repeatedly. Most questions cost one look at
// the clock. Thread rules: any thread; questions about one Wait by one thread at a time.
#pragma once

#include <chrono>
#include <map>
#include <mutex>
#include <optional>

#include "runtime/group.h"
#include "runtime/task.h"

namespace altorch {

class Watchdog {
 public:
  using Clock = std::chrono::steady_clock;

  explicit Watchdog(Group& group);

  Wait begin_wait(const Operation& operation) const;
  // Begins a wait again, with the deadline of `before`.
  Wait begin_again(const Operation& operation, const Wait& before) const;
  // Checks only the deadline, which counts from begin_wait(). Before it this is one subtraction;
  // after it it may take seconds, as look_after(): it tells the store, and asks late ranks.
  std::optional<Error> overdue(const Operation& operation, const Wait& wait, Clock::time_point now) const;
  // Checks deadline and dead peers, but only from `wait.next_look` on, which it then sets anew.
  // Returns nothing where all is well. Once the operation has waited for ALTORCH_STALL_SECONDS it
  // also checks whether a peer made another call, refused this one or closed the group, and answers
  // the desync queries of other ranks. Does not check whether this rank has closed the group. Calls
  // on a GPU use it (gpu/device_calls.h).
  std::optional<Error> examine(const Operation& operation, Wait& wait, Clock::time_point now);
  // Returns why the operation cannot end, or nothing if the caller should go on waiting; every wait
  // on the host calls it. It returns kClosed at once if this rank has closed the group. Otherwise
  // it does what examine() does: before `wait.next_look` it only reads the clock, at a look it may
  // ask the store. After the deadline it may take seconds, because it asks late ranks for their
  // current call. It does not close the group: the caller stops waiting and gives the error to
  // fail().
  std::optional<Error> look_after(const Operation& operation, Wait& wait, Clock::time_point now);
  // Compares only what the ranks called.
  std::optional<Error> compare(const Operation& operation, Wait& wait);
  // Whether the look that examine() has just taken was one at which stalled ranks compare: once a
  // second, or more rarely where they are thousands.
  bool is_time_to_compare(const Wait& wait, Clock::time_point now) const;
  // Checks only for dead peers, now and then: the operation's peer, or all ranks of the group.
  std::optional<Error> look_for_dead_only(const Operation& operation, Wait& wait, Clock::time_point now);
  // For a message that waits: the mismatch, if its other end is on another kind of device.
  std::optional<Error> compare_message(const Operation& operation);

  // Replaces an error of a transport or of the store by the loss of a peer, if that is its cause.
  // May take a second.
  Error with_its_reason(const Error& cause);
  // For a transport's error: the loss of a peer, or the reason for which a peer aborted. Otherwise,
  // and if neither is found within 2.5 s, `cause`. It sleeps between looks: call it without
  // locks. Sets `all_told` as with_reported_reason() does, but reads the board in any case.
  Error with_peers_reason(const Operation& operation, const Error& cause, bool& all_told);
  // If the call failed because a peer is lost: the reason that a rank wrote down before, if there
  // is one; otherwise `noticed`. `all_told`: set to whether some rank has told all others. If it is
  // true at the call, the board is not read.
  Error with_reported_reason(const Operation& operation, const Error& noticed, bool& all_told);
  // The call has failed: closes the group, and tells the peers unless a peer has told all ranks
  // already.
  Error fail(const Operation& operation, const Error& noticed, const Wait& wait);

 private:
  std::optional<Error> look_for_dead(const Operation& operation, Wait& wait);
  // Whether ranks may end before the operation does.
  static bool may_end_early(const Operation& operation);
  // The first death of a rank that such an operation still needs.
  std::optional<Liveness::Death> needed_death(const Operation& operation);
  // What a dead rank of the group had finished when it left in good order, or nothing.
  std::optional<std::uint64_t> finished_by(int dead);
  std::optional<Error> closed_by_peer(const Operation& operation, Wait& wait);
  // The death of a peer, if that is what the error comes from.
  std::optional<Error> death_behind(const Error& cause, bool ask_store);
  // What `look_at(ask_store)` finds first, within `limit`.
  template <typename Look>
  std::optional<Error> look_while_a_peer_dies(std::chrono::milliseconds limit, const Look& look_at);
  // The reason for which a peer aborted before it was gone, or the mismatch between its call and
  // this rank's. Nothing if it says less than `noticed`.
  std::optional<Error> reported_reason(const Operation& operation, const Error& noticed, bool& all_told);
  // Whether the error names that rank of the group, or one that is neither that nor this one.
  bool names(const Error& error, int rank) const;
  bool names_another(const Error& error, int rank) const;

  Group& group_;
  const std::chrono::milliseconds stall_;
  std::mutex mutex_;                   // guards left_
  std::map<int, std::uint64_t> left_;  // by dead rank that had left before: what it had finished
};

}  // namespace altorch
