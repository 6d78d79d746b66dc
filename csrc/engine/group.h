// SPDX-License-Identifier: BSD-3-Clause
// A group: who is in it, how its calls are numbered, whether it still takes any, and how its errors read.
//
// One rule for what comes after an error, on every route (docs/errors.md): a call that fails once it has
// begun closes the group, on this rank at once and on the others when they next wait, so that nothing it has
// left behind is ever taken for something else. A call that is refused before it begins leaves the group as
// it was, provided that all ranks refuse it: what a rank refused is a part of the history that its later
// calls must share with the others'.
//
// Thread rules: any thread, but where something else is said. No lock of anybody else's is taken under its
// own.
#pragma once

#include <atomic>
#include <chrono>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "rendezvous/membership.h"
#include "engine/operation.h"
#include "engine/progress.h"
#include "observe/job_watch.h"
#include "observe/stall_board.h"
#include "observe/statistics.h"

namespace altorch {

class Group {
 public:
  Group(Membership membership, int rank, int size);

  int rank() const { return rank_; }
  int size() const { return size_; }
  const std::string& name() const { return membership_.name; }
  const Membership& membership() const { return membership_; }
  const std::vector<int>& global_ranks() const { return membership_.global_ranks; }
  // Keys of this group alone.
  KeyValueStore& store() const { return *membership_.store; }
  JobWatch* watch() const { return membership_.watch.get(); }
  StallBoard& board() const { return *board_; }
  const Statistics& statistics() const { return *statistics_; }
  // Before the first call.
  void add(std::shared_ptr<Observer> observer) { observers_.push_back(std::move(observer)); }

  // Numbers collectives in the order of the calls; every rank takes one for every call, refused ones
  // included.
  std::uint64_t next_sequence() { return sequence_.fetch_add(1, std::memory_order_relaxed) + 1; }
  std::uint64_t sequence() const { return sequence_.load(std::memory_order_relaxed); }
  // Appends the call to the group's history, which ranks compare. To be called for every collective that has a number, in
  // the order of the numbers, by one thread at a time; so is refuse().
  void append_to_history(Operation& operation);
  // A message, or what a window waits for, which have no sequence number, is on its way to be posted.
  void issue(Operation& operation) const;
  // The call begins: from now on this rank can tell others what it called.
  CallNote started(const Operation& operation);
  // After `took`; zero: nobody knows how long.
  void finished(const Operation& operation, const char* transport, std::string_view route,
                std::chrono::nanoseconds took) const {
    const ObservedCall call = observed(operation);
    for (const auto& observer : observers_) observer->finished(call, transport, route, took);
  }

  // An access to a window, which has no place among the calls, is done; unless that took a while (issue()), nobody else need
  // know.
  void count(const Operation& operation, const char* transport, std::string_view route) const {
    if (operation.number) return finished(operation, transport, route, {});
    statistics_->finished(observed(operation), transport, route, {});
  }

  // Throws the error that calls get once the group is closed.
  void check_open() const;
  // Throws in a forked child, which is not in the group.
  static void check_own_process();
  bool is_closing() const { return closing_.load(std::memory_order_acquire); }
  // What calls get then.
  std::optional<Error> closed() const;
  // Whether a call was aborted for which peers may still send large messages.
  bool is_tainted() const { return tainted_.load(std::memory_order_acquire); }
  // Why the group is closed to every call, if it is. Error::kind() is that of the first failure, or kClosed.
  std::optional<Error> failure() const;

  // This rank refuses an operation, before it began: tells the peers, who may already wait in it.
  Error refuse(const Operation& operation, const Error& cause);
  // An operation has failed: closes the group, once, for what fails afterwards fails because of that. `tell`:
  // the peers, who may wait for this rank.
  Error give_up(const Operation& operation, const Error& cause, bool tell = true);
  // No operation is accepted from now on; those in flight fail with ErrorKind::kClosed. Idempotent, needs no
  // peer.
  void close(const std::string& why, bool tell = false);

  // Adds group, rank, operation and sequence number to an error.
  Error explain(const Operation& operation, const Error& cause) const;
  // The same, and tells the observers that the operation ends with it.
  Error failed(const Operation& operation, const Error& cause) const;

 private:
  void tell_failed(const Operation& operation, const Error& explained) const;
  // "all_reduce #7", "recv from rank 2, tag 5"
  std::string label(const Operation& operation) const;
  ObservedCall observed(const Operation& operation) const {
    return {operation,
            operation.sequence,
            payload_bytes(operation, size_),
            operation.number,
            operation.timeout,
            operation.tag,
            is_one_sided(operation.kind) ? operation.access : nullptr};
  }

  const ProgressThread::Use use_;
  const Membership membership_;
  const int rank_, size_;
  const std::shared_ptr<StallBoard> board_;
  const std::shared_ptr<Statistics> statistics_ = std::make_shared<Statistics>();
  std::vector<std::shared_ptr<Observer>> observers_ = {statistics_};
  std::atomic<std::uint64_t> sequence_{0};

  mutable std::mutex mutex_;  // a leaf; guards what follows
  std::uint64_t history_ = 0;
  std::optional<Error> closed_;   // what calls get
  std::optional<Error> failure_;  // what closed it
  std::atomic<bool> closing_{false}, tainted_{false};
};

}  // namespace altorch
