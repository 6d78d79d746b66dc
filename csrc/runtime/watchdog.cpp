// SPDX-License-Identifier: BSD-3-Clause
#include "runtime/watchdog.h"

#include <cstdio>
#include <span>
#include <string_view>
#include <thread>

#include "base/env.h"
#include "rendezvous/poll_pause.h"
#include "runtime/fingerprint.h"
#include "trace/late_ranks.h"

namespace altorch {
namespace {

constexpr std::chrono::milliseconds kLookEvery{100};
// At so many looks in a row a peer must be dead. A message that it has sent before may still be in
// the buffers of its kernel, which a slow network takes a while to empty.
constexpr int kNearLooks = 2, kFarLooks = 5;
// A process that is being killed loses its memory, at which a transport fails, before its end can
// be seen.
constexpr std::chrono::milliseconds kDying{1000};
// Before that it gives its GPU back.
constexpr std::chrono::milliseconds kDyingOnGpu{2500};
constexpr const char* kSameCalls = "; all ranks must make the same calls in the same order";

bool is_time_to_look(Wait& wait, Watchdog::Clock::time_point now) {
  if (now < wait.next_look) return false;
  wait.next_look = now + kLookEvery;
  ++wait.looks;
  return true;
}

Error lost(const Liveness::Death& death, const std::string& noticed_by = "") {
  return Error(ErrorKind::kPeerLost, "global rank " + std::to_string(death.rank) +
                                         " is lost: " + death.evidence + noticed_by +
                                         "; look for its error above, then start the job again");
}

std::string seconds(std::chrono::milliseconds duration) {
  char text[32];
  std::snprintf(text, sizeof text, "%g s", static_cast<double>(duration.count()) / 1000);
  return text;
}

// What those say that are missed: the last thing that they did.
std::string text_of(const Group& group, std::span<const int> late) {
  if (!group.watch() || group.size() == 1) return "";
  return text_of_late_ranks(*group.watch(), group.membership().key, late, group.global_ranks());
}

std::optional<Liveness::Death> death_of(const Group& group, int rank) {
  const int& global_rank = group.global_ranks()[static_cast<std::size_t>(rank)];
  return group.watch()->liveness.check({&global_rank, 1}, /*ask_store=*/false);
}

// A message between ranks that live does not fail by the death of a third. But its peer may have
// aborted its own calls for that reason.
std::string text_of_dead(const Group& group) {
  if (!group.watch()) return "";
  const auto death = group.watch()->liveness.check(group.global_ranks(), /*ask_store=*/false);
  return death ? "; global rank " + std::to_string(death->rank) + " is lost: " + death->evidence : "";
}

Error timed_out(const Operation& operation, Group& group) {
  std::string cause = "timed out, not done after its timeout of " + seconds(operation.timeout);
  if (operation.kind == OpKind::kOneSided) {
    if (operation.root >= 0) cause += text_of(group, {{operation.root}});
    cause += "; is the other rank late, or in another place of the program? Else raise the timeout";
  } else if (operation.is_message()) {
    cause += ", of " + std::to_string(operation.count) + " " + name_of(operation.dtype);
    if (operation.root >= 0) cause += text_of(group, {{operation.root}});
    cause += std::string("; did the peer post the matching ") +
             (operation.kind == OpKind::kSend ? "recv" : "send") + " with the same tag?" +
             text_of_dead(group);
  } else {
    const auto found = group.board().waiting(note_of(operation));
    cause += ": " + found.text + text_of(group, found.elsewhere) + "; this rank's call is " +
             describe_fingerprint(fingerprint(operation));
    cause += ". Find the rank that is late or took another path, or raise the timeout";
  }
  return Error(ErrorKind::kTimeout, cause);
}

Error mismatch(const DesyncBoard::Finding& finding, const CallNote& mine, int rank) {
  const auto both = [&](const CallNote& theirs, const CallNote& own) {
    return "rank " + std::to_string(finding.rank) + " of the group called " +
           describe_fingerprint(theirs.fingerprint) + ", rank " + std::to_string(rank) + " " +
           describe_fingerprint(own.fingerprint);
  };
  if (finding.called.fingerprint != mine.fingerprint)
    return Error(ErrorKind::kMismatch, both(finding.called, mine) + kSameCalls);
  std::string where = "somewhere before";
  if (finding.first_difference_theirs) {
    where = "at #" + std::to_string(finding.first_difference_theirs->sequence) +
            (mine.on_gpu ? " (CUDA): " : ": ") +
            both(*finding.first_difference_theirs, *finding.first_difference_mine);
  }
  return Error(
      ErrorKind::kMismatch,
      "the ranks agree about this call, but not about earlier ones. They parted " + where + kSameCalls);
}

}  // namespace

Watchdog::Watchdog(Group& group) : group_(group), stall_(seconds_setting("ALTORCH_STALL_SECONDS")) {}

Wait Watchdog::begin_wait(const Operation& operation) const {
  Wait wait;
  wait.issued = wait.began = Clock::now();
  wait.next_look = wait.began + kLookEvery;
  wait.spin_budget = AdaptiveWait::spin_budget_for(payload_bytes(operation, group_.size()));
  return wait;
}

Wait Watchdog::begin_again(const Operation& operation, const Wait& before) const {
  Wait wait = begin_wait(operation);
  wait.issued = before.issued;
  return wait;
}

std::optional<Error> Watchdog::look_after(const Operation& operation, Wait& wait, Clock::time_point now) {
  if (group_.is_closing()) return group_.closed();
  return examine(operation, wait, now);
}

bool Watchdog::is_time_to_compare(const Wait& wait, Clock::time_point now) const {
  return now - wait.began > stall_ &&
         wait.looks % static_cast<int>(calm_pace(group_.size()) / kLookEvery) == 0;
}

std::optional<Error> Watchdog::overdue(const Operation& operation, const Wait& wait,
                                       Clock::time_point now) const {
  const auto waited = std::chrono::duration_cast<std::chrono::milliseconds>(now - wait.issued);
  if (waited < operation.timeout) return std::nullopt;
  return timed_out(operation, group_);
}

// The clock first: what else is asked may take its time.
std::optional<Error> Watchdog::examine(const Operation& operation, Wait& wait, Clock::time_point now) {
  if (!is_time_to_look(wait, now)) return std::nullopt;
  if (auto error = overdue(operation, wait, now)) return error;
  if (auto error = look_for_dead(operation, wait)) return error;
  if (now - wait.began < stall_) return std::nullopt;
  if (group_.watch()) group_.watch()->queries.answer();
  if (!is_time_to_compare(wait, now)) return std::nullopt;
  return operation.is_collective() ? compare(operation, wait) : closed_by_peer(operation, wait);
}

std::optional<Error> Watchdog::look_for_dead_only(const Operation& operation, Wait& wait,
                                                  Clock::time_point now) {
  if (!is_time_to_look(wait, now)) return std::nullopt;
  return look_for_dead(operation, wait);
}

std::optional<Error> Watchdog::look_for_dead(const Operation& operation, Wait& wait) {
  if (!group_.watch()) return std::nullopt;
  std::span<const int> ranks = group_.global_ranks();
  if (!operation.is_collective() && operation.root >= 0)
    ranks = ranks.subspan(static_cast<std::size_t>(operation.root), 1);
  const bool ask_store = wait.looks % 10 == 0;
  auto death = group_.watch()->liveness.check(ranks, ask_store || wait.suspicions == 1);
  if (death && may_end_early(operation)) death = needed_death(operation);
  wait.suspicions = death ? wait.suspicions + 1 : 0;
  if (!death || wait.suspicions < (death->is_far ? kFarLooks : kNearLooks)) return std::nullopt;
  return lost(*death);
}

// A rank may end while others still wait in a call on the host of which it has done its part: it
// has sent all that it was to send. A receive from any rank needs no particular rank. A GPU group
// counts a call as finished when it is enqueued, and its handshakes need every rank.
bool Watchdog::may_end_early(const Operation& operation) {
  if (operation.on_gpu()) return false;
  return operation.is_collective() ? operation.sequence > 0
                                   : operation.is_message() && operation.root == kAnySource;
}

std::optional<Liveness::Death> Watchdog::needed_death(const Operation& operation) {
  std::optional<Liveness::Death> first;
  int gone = 0;
  for (int rank = 0; rank < group_.size(); ++rank) {
    const auto death = death_of(group_, rank);
    if (!death) continue;
    const auto finished = finished_by(rank);
    if (!finished || (operation.is_collective() && operation.sequence > *finished)) return death;
    ++gone;
    if (!first) first = death;
  }
  const bool no_sender = operation.is_message() && gone == group_.size() - 1;
  return no_sender ? first : std::nullopt;
}

std::optional<std::uint64_t> Watchdog::finished_by(int dead) {
  const std::lock_guard lock(mutex_);
  auto left = left_.find(dead);
  if (left == left_.end()) {
    const auto finished = group_.board().left(dead);
    if (!finished) return std::nullopt;
    left = left_.emplace(dead, *finished).first;
  }
  return left->second;
}

std::optional<Error> Watchdog::closed_by_peer(const Operation& operation, Wait& wait) {
  const auto finding = group_.board().closed();
  if (!finding) return compare_message(operation);
  wait.told_by_peer = true;
  return finding->aborted;
}

// torch picks a side of the group by each rank's own tensor.
std::optional<Error> Watchdog::compare_message(const Operation& operation) {
  if (!operation.is_message() || operation.root < 0 || operation.root == group_.rank()) return std::nullopt;
  const bool sends = operation.kind == OpKind::kSend, on_gpu = operation.on_gpu();
  const auto other = group_.board().compare_message(operation.root, sends, operation.tag, on_gpu);
  if (!other || *other == on_gpu) return std::nullopt;
  return Error(ErrorKind::kMismatch,
               "rank " + std::to_string(operation.root) + " of the group has the other end " +
                   (on_gpu ? "in a CPU tensor, and this rank in a CUDA tensor"
                           : "in a CUDA tensor, and this rank in a CPU tensor") +
                   "; both ends of a message must be on the same kind of device (for object "
                   "lists: give both calls the same device)");
}

std::optional<Error> Watchdog::compare(const Operation& operation, Wait& wait) {
  DesyncBoard& board = group_.board();
  const CallNote mine = note_of(operation);
  if (!wait.written_down) board.publish_wait(mine);
  wait.written_down = true;
  const auto finding = board.compare(mine);
  if (!finding) {
    // Again and again, more and more rarely: a peer may yet come to it, and pass it.
    if (group_.watch() && board.is_first_waiter(mine) && wait.looks >= wait.next_query) {
      group_.watch()->queries.ask(board.group(), mine);
      wait.next_query = 2 * wait.looks;
    }
    return std::nullopt;
  }
  if (!finding->aborted) return mismatch(*finding, mine, group_.rank());
  wait.told_by_peer = finding->closed;  // a peer that only refused must learn that the group is closed
  return finding->aborted;
}

// A rank that has left the group in good order is the last to be blamed.
std::optional<Error> Watchdog::death_behind(const Error& cause, bool ask_store) {
  if (!group_.watch()) return std::nullopt;
  auto death = group_.watch()->liveness.check(group_.global_ranks(), ask_store);
  if (!death) return std::nullopt;
  for (int rank = 0; rank < group_.size(); ++rank) {
    const auto other = death_of(group_, rank);
    if (!other || finished_by(rank)) continue;
    death = other;
    break;
  }
  return lost(*death, std::string(" (") + cause.what() + ")");
}

// Every rank does so, so it asks the store ten times.
template <typename Look>
std::optional<Error> Watchdog::look_while_a_peer_dies(std::chrono::milliseconds limit, const Look& look_at) {
  const auto began = Clock::now();
  for (int look = 0;; ++look) {
    if (auto found = look_at(/*ask_store=*/look % 10 == 0)) return found;
    if (Clock::now() - began > limit) return std::nullopt;
    std::this_thread::sleep_for(limit / 100);
  }
}

// A killed peer reaches a transport as a failed system call: its words name neither the rank nor
// the reason.
Error Watchdog::with_its_reason(const Error& cause) {
  if (cause.kind() != ErrorKind::kTransport || !group_.watch() || group_.is_closing()) return cause;
  return look_while_a_peer_dies(kDying, [&](bool ask_store) { return death_behind(cause, ask_store); })
      .value_or(cause);
}

// NCCL notices that a peer has closed a connection before anything else does.
Error Watchdog::with_peers_reason(const Operation& operation, const Error& cause, bool& all_told) {
  if (cause.kind() != ErrorKind::kTransport || group_.size() == 1) return cause;
  return look_while_a_peer_dies(kDyingOnGpu,
                                [&](bool ask_store) -> std::optional<Error> {
                                  if (const auto death = death_behind(cause, ask_store))
                                    return with_reported_reason(operation, *death, all_told);
                                  return ask_store ? reported_reason(operation, cause, all_told)
                                                   : std::nullopt;
                                })
      .value_or(cause);
}

bool Watchdog::names(const Error& error, int rank) const {
  const int global_rank = group_.global_ranks()[static_cast<std::size_t>(rank)];
  return std::string_view(error.what()).find("global rank " + std::to_string(global_rank) + " ") !=
         std::string_view::npos;
}

bool Watchdog::names_another(const Error& error, int rank) const {
  return std::string_view(error.what()).find("global rank ") != std::string_view::npos &&
         !names(error, rank) && !names(error, group_.rank());
}

// A rank whose call has failed writes down why, and may be gone before the others look there: that
// it has gone says less. Example: rank 2 dies, rank 1 closes the group and leaves. Rank 0 then
// notices the loss of rank 1, but the reason of rank 1 names rank 2. Of two reports of one loss,
// `noticed` stays.
std::optional<Error> Watchdog::reported_reason(const Operation& operation, const Error& noticed,
                                               bool& all_told) {
  const CallNote mine = operation.is_collective() ? note_of(operation) : CallNote();
  const auto finding = operation.is_collective() ? group_.board().compare(mine) : group_.board().closed();
  if (!finding) return std::nullopt;
  all_told = finding->closed;
  if (!finding->aborted) return mismatch(*finding, mine, group_.rank());
  if (finding->aborted->kind() == ErrorKind::kPeerLost && noticed.kind() == ErrorKind::kPeerLost &&
      !(names(noticed, finding->rank) && names_another(*finding->aborted, finding->rank)))
    return std::nullopt;
  return finding->aborted;
}

Error Watchdog::with_reported_reason(const Operation& operation, const Error& noticed, bool& all_told) {
  if (noticed.kind() != ErrorKind::kPeerLost || all_told) return noticed;
  return reported_reason(operation, noticed, all_told).value_or(noticed);
}

Error Watchdog::fail(const Operation& operation, const Error& noticed, const Wait& wait) {
  bool all_told = wait.told_by_peer;
  const Error cause = with_reported_reason(operation, with_its_reason(noticed), all_told);
  return group_.abort_call(operation, cause, !all_told);
}

}  // namespace altorch
