// SPDX-License-Identifier: BSD-3-Clause
#include "runtime/group.h"

#include "base/fnv.h"
#include "runtime/fingerprint.h"
#include "runtime/progress.h"
#include "transports/channel.h"

namespace altorch {
namespace {

// The same on all ranks, and no other group's: names alone repeat among disjoint groups.
std::string key_of(const Membership& membership) {
  Fnv hash;
  for (const int rank : membership.global_ranks) hash.add(static_cast<std::uint64_t>(rank));
  return membership.name + "/" + std::to_string(hash.value());
}

constexpr std::int64_t kEagerBytes =
    4096;  // a transport sends up to so many bytes without asking the receiver

// Whether peers may still send large messages for a call that was aborted. In a mismatch, and in
// uneven calls, this rank does not know how much they send.
bool taints(const Operation& operation, const Error& cause, int size) {
  return operation.kind == OpKind::kOneSided || operation.uneven() || cause.kind() == ErrorKind::kMismatch ||
         payload_bytes(operation, size) > kEagerBytes;
}

}  // namespace

Group::Group(Membership membership, int rank, int size)
    : membership_(std::move(membership)),
      rank_(rank),
      size_(size),
      board_(std::make_shared<DesyncBoard>(membership_.store, key_of(membership_), rank, size)) {
  if (watch() && size_ > 1) watch()->queries.join(board_);
}

void Group::append(Operation& operation) {
  const std::lock_guard lock(mutex_);
  std::uint64_t& history = order_of(operation.device).history;
  operation.history = history;
  history = append_call(history, fingerprint(operation));
}

void Group::append_to_history(Operation& operation) {
  append(operation);
  issue(operation);
}

void Group::append_to_gpu_history(const Operation& barrier) {
  Operation place = barrier;
  place.device = 0;
  place.sequence = next_sequence(place.device);
  barriers_.fetch_add(1, std::memory_order_relaxed);
  append(place);
  board_->record(note_of(place));
}

void Group::issue(Operation& operation) const {
  static std::atomic<std::uint64_t> calls{0};
  operation.number = calls.fetch_add(1, std::memory_order_relaxed) + 1;
  const ObservedCall call = observed(operation);
  for (const auto& observer : observers_) observer->issued(call);
}

CallNote Group::started(const Operation& operation) {
  CallNote note;
  if (operation.is_collective()) board_->record(note = note_of(operation));
  const ObservedCall call = observed(operation);
  for (const auto& observer : observers_) observer->started(call);
  return note;
}

Error Group::failed(const Operation& operation, const Error& cause) const {
  Error explained = explain(operation, cause);
  tell_failed(operation, explained);
  return explained;
}

void Group::tell_failed(const Operation& operation, const Error& explained) const {
  Operation bare = operation;
  bare.input_counts = bare.output_counts = {};  // the caller may have freed them
  for (const auto& observer : observers_)
    observer->failed({bare, bare.sequence, 0, bare.number, bare.timeout}, explained);
}

void Group::check_open() const {
  if (is_closing()) throw *closed();
  check_own_process();
}

void Group::check_own_process() {
  if (ProgressThread::usable()) return;
  throw Error(ErrorKind::kClosed,
              "this process was forked from the one that made the group and cannot use it; start it with the "
              "'spawn' method to communicate");
}

std::optional<Error> Group::closed() const {
  const std::lock_guard lock(mutex_);
  return closed_;
}

std::optional<Error> Group::failure() const {
  const std::lock_guard lock(mutex_);
  return failure_ ? failure_ : closed_;
}

Error Group::refuse(const Operation& operation, const Error& cause) {
  if (operation.is_collective()) {
    CallNote note{operation.sequence, CallNote::kRefused, 0, operation.on_gpu()};
    {
      const std::lock_guard lock(mutex_);
      std::uint64_t& history = order_of(operation.device).history;
      note.history = history = append_call(history, CallNote::kRefused);
    }
    board_->record(note);
    if (size_ > 1 && !is_closing()) board_->publish_refusal(note, cause.what());
  }
  return failed(operation, cause);
}

// Observers come last: they may take their time.
Error Group::abort_call(const Operation& operation, const Error& cause, bool tell) {
  Error explained = explain(operation, cause);
  if (taints(operation, cause, size_)) tainted_.store(true);
  bool closes = false;
  if (cause.kind() != ErrorKind::kClosed) {
    const std::lock_guard lock(mutex_);
    closes = !closed_;
    if (closes) {
      failure_ = explained;
      closed_ = Error(ErrorKind::kClosed, "the group is closed since " + label(operation) + " failed (" +
                                              cause.what() + "); destroy it and make a new one");
      closing_.store(true);
    }
  }
  if (closes && tell && size_ > 1) board_->publish_closed(label(operation), cause);
  tell_failed(operation, explained);
  return explained;
}

void Group::leave() {
  if (size_ == 1 || is_closing()) return;
  board_->publish_left(finished_.load());
}

// The thread that drives ends what is in flight.
void Group::close(const std::string& why, bool tell) {
  {
    const std::lock_guard lock(mutex_);
    if (closed_) tell = false;
    if (!closed_) closed_ = Error(ErrorKind::kClosed, why);
    closing_.store(true);
  }
  if (tell && size_ > 1) board_->publish_closed("the group", Error(ErrorKind::kClosed, why));
}

std::string Group::label(const Operation& operation) const {
  std::string text = name_of(operation.kind);
  if (operation.kind == OpKind::kOneSided) {
    if (operation.tag > 0) text += " " + std::to_string(operation.tag);  // else it has none yet
    text += std::string(": ") + operation.access;
    return operation.root == kAnySource ? text : text + " rank " + std::to_string(operation.root);
  }
  if (!operation.is_message())
    return text + " #" + std::to_string(operation.sequence) + (operation.on_gpu() ? " (CUDA)" : "");
  text += operation.kind == OpKind::kSend ? " to " : " from ";
  text += operation.root == kAnySource ? "any rank" : "rank " + std::to_string(operation.root);
  return text + (*operation.access ? std::string(", of ") + operation.access
                                   : ", tag " + std::to_string(operation.tag));
}

Error Group::explain(const Operation& operation, const Error& cause) const {
  return cause.with_label("altorch: group '" + name() + "', rank " + std::to_string(rank_) + ": " +
                          label(operation) + ": ");
}

}  // namespace altorch
