// SPDX-License-Identifier: BSD-3-Clause
// A group: its ranks, the sequence numbers of its calls, whether it still accepts calls, and the
// text of its errors.
//
// The rule after an error, on every route (docs/errors.md): a call that fails after it has begun
// closes the group, on this rank at once and on its peers when they next wait. So nothing that the
// failed call left in flight can match a later call. A call that is refused before it begins leaves
// the group open, provided that all ranks refuse it: refused calls are part of the history, which
// ranks compare in later calls.
//
// Thread rules: any thread, unless a member says otherwise. mutex_ is a leaf: no other lock is
// taken while it is held.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/operation.h"
#include "health/desync_board.h"
#include "rendezvous/membership.h"
#include "runtime/progress.h"
#include "trace/job_watch.h"
#include "trace/statistics.h"

namespace altorch {

class Group {
 public:
  Group(Membership membership, int rank, int size);

  int rank() const { return rank_; }
  int size() const { return size_; }
  const std::string& name() const { return membership_.name; }
  const Membership& membership() const { return membership_; }
  const std::vector<int>& global_ranks() const { return membership_.global_ranks; }
  // The keys of this group only.
  KeyValueStore& store() const { return *membership_.store; }
  JobWatch* watch() const { return membership_.watch.get(); }
  DesyncBoard& board() const { return *board_; }
  const Statistics& statistics() const { return *statistics_; }
  // To be called before the first call of the group.
  void add(std::shared_ptr<Observer> observer) { observers_.push_back(std::move(observer)); }

  // Numbers collectives in the order of the calls, those on CPU tensors (kHostDevice) and those on
  // CUDA tensors apart. Every rank takes a number for every call, also for a refused one.
  std::uint64_t next_sequence(int device = kHostDevice) {
    return order_of(device).sequence.fetch_add(1, std::memory_order_relaxed) + 1;
  }
  // The last number that was taken.
  std::uint64_t sequence(int device = kHostDevice) const {
    return orders_[device != kHostDevice].sequence.load(std::memory_order_relaxed);
  }
  // How many calls have a number, of both kinds.
  std::uint64_t count_calls() const {
    return sequence(kHostDevice) + sequence(/*device=*/0) - barriers_.load(std::memory_order_relaxed);
  }
  // Appends the call to its kind's history, which ranks compare, and issues it. Call it for each
  // collective that has a sequence number, in the order of these numbers, and for each kind from
  // one thread at a time. The last two rules hold for refuse(), too.
  void append_to_history(Operation& operation);
  // Gives a CPU barrier a place in the CUDA order, too. A rank that waits on its device then learns
  // that a peer has gone on to the barrier. Call it after append_to_history(), under the same
  // rules.
  void append_to_gpu_history(const Operation& barrier);
  // Gives the operation its number in this process (Operation::number), and tells the observers,
  // before it is posted. Call it for operations without a sequence number: messages, and accesses
  // to windows that wait.
  void issue(Operation& operation) const;
  // Call it when the operation begins. From now on this rank can tell its peers what it called.
  CallNote started(const Operation& operation);
  // Call it when the operation has succeeded. `took`: its duration; zero: unknown.
  void finished(const Operation& operation, const char* transport, std::string_view route,
                std::chrono::nanoseconds took) {
    if (operation.is_collective() && !operation.on_gpu()) count_finished(operation.sequence);
    const ObservedCall call = observed(operation);
    for (const auto& observer : observers_) observer->finished(call, transport, route, took);
  }

  // Call it when an access to a window has succeeded. If issue() has numbered the access, all
  // observers are told, else only the statistics.
  void count(const Operation& operation, const char* transport, std::string_view route) {
    if (operation.number) return finished(operation, transport, route, {});
    statistics_->finished(observed(operation), transport, route, {});
  }

  // Throws the error that calls get once the group is closed.
  void check_open() const;
  // Throws in a forked child, which is not in the group.
  static void check_own_process();
  bool is_closing() const { return closing_.load(std::memory_order_acquire); }
  // The error that calls get once the group is closed, or nothing.
  std::optional<Error> closed() const;
  // Whether a call was aborted for which peers may still send large messages.
  bool is_tainted() const { return tainted_.load(std::memory_order_acquire); }
  // Why the group is closed to every call, if it is. Error::kind() is that of the first failure, or
  // kClosed.
  std::optional<Error> failure() const;

  // Call it when this rank refuses an operation before it begins. Tells the peers, which may
  // already wait in it.
  Error refuse(const Operation& operation, const Error& cause);
  // Call it when an operation has failed after it began. Closes the group; later failures follow
  // from the first one, and do not replace it. `tell`: also tells the peers through the store,
  // which may wait for this rank. Returns the error with its label. Throws nothing.
  Error abort_call(const Operation& operation, const Error& cause, bool tell = true);
  // Call it when the program destroys the group. Peers that still wait on CPU tensors then do not
  // take the end of its process for a loss, as far as it has finished their calls. Does nothing in
  // a closed group.
  void leave();
  // No operation is accepted from now on; those in flight fail with ErrorKind::kClosed. Idempotent,
  // needs no peer.
  void close(const std::string& why, bool tell = false);

  // Adds group, rank, operation and sequence number to an error.
  Error explain(const Operation& operation, const Error& cause) const;
  // The same, and tells the observers that the operation ends with this error.
  Error failed(const Operation& operation, const Error& cause) const;

 private:
  // Ranks may call CPU and CUDA collectives in different orders: one thread saves a checkpoint
  // while another trains.
  struct Order {
    std::atomic<std::uint64_t> sequence{0};
    std::uint64_t history = 0;
  };
  // Two threads may finish calls one after the other and come here in the other order.
  void count_finished(std::uint64_t number) {
    std::uint64_t last = finished_.load(std::memory_order_relaxed);
    while (last < number && !finished_.compare_exchange_weak(last, number, std::memory_order_relaxed)) {
    }
  }
  void append(Operation& operation);
  Order& order_of(int device) { return orders_[device != kHostDevice]; }
  void tell_failed(const Operation& operation, const Error& explained) const;
  // "all_reduce #7", "all_reduce #3 (CUDA)", "recv from rank 2, tag 5"
  std::string label(const Operation& operation) const;
  ObservedCall observed(const Operation& operation) const {
    return {operation,
            operation.sequence,
            payload_bytes(operation, size_),
            operation.number,
            operation.timeout,
            operation.tag,
            is_one_sided(operation.kind) ? operation.access : nullptr,
            operation.on_gpu()};
  }

  const ProgressThread::Use use_;
  const Membership membership_;
  const int rank_, size_;
  const std::shared_ptr<DesyncBoard> board_;
  const std::shared_ptr<Statistics> statistics_ = std::make_shared<Statistics>();
  std::vector<std::shared_ptr<Observer>> observers_ = {statistics_};

  std::atomic<std::uint64_t> barriers_{0};  // with a place in both orders
  std::atomic<std::uint64_t> finished_{0};  // the last collective on CPU tensors

  mutable std::mutex mutex_;      // a leaf; guards what follows
  std::array<Order, 2> orders_;   // on CPU tensors, on CUDA tensors; their sequence needs no lock
  std::optional<Error> closed_;   // what calls get
  std::optional<Error> failure_;  // what closed it
  std::atomic<bool> closing_{false}, tainted_{false};
};

}  // namespace altorch
