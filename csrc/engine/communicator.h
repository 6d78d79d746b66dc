// A process group as the engine sees it: ranks, links, order, deadlines.
//
// One rule for what comes after an error, on every route (docs/errors.md): a call that fails once it has
// begun closes the group, on this rank at once and on the others when they next wait, so that nothing it has
// left behind is ever taken for something else. A call that is refused before it begins leaves the group as
// it was, provided that all ranks refuse it: what a rank refused is a part of the history that its later
// calls must share with the others'.
//
// Collectives of a group run one after another, in the order of the calls. A synchronous one on an idle group
// runs on the calling thread; otherwise it queues behind the asynchronous ones, which the progress thread
// moves on. Messages are posted by the calling thread at once and are independent of collectives. Whoever
// waits helps. Lock order: drive_mutex_ before mutex_; no other lock is taken under either, MPI's own
// excepted. Thread rules: any thread.
#pragma once

#include <array>
#include <atomic>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "engine/collective.h"
#include "engine/task.h"
#include "observe/job_watch.h"
#include "observe/statistics.h"
#include "transports/links.h"

namespace altorch {

struct CommunicatorSettings {
  std::string name;                      // of the group, for messages
  std::vector<int> global_ranks;         // rank in the job of every rank of the group
  std::shared_ptr<KeyValueStore> store;  // of the group
  std::shared_ptr<JobWatch> watch;       // over the job; may be null
};

class Communicator : public std::enable_shared_from_this<Communicator> {
 public:
  Communicator(CommunicatorSettings settings, std::unique_ptr<Links> links);
  ~Communicator();

  int rank() const { return rank_; }
  int size() const { return size_; }
  const std::string& name() const { return settings_.name; }
  const char* transport() const { return links_->transport(); }
  Statistics& statistics() { return statistics_; }
  std::int64_t max_message_tag() const;
  // Keys of this group alone.
  KeyValueStore& store() { return *settings_.store; }
  // Makes the call a part of the group's history. To be called for every collective that is numbered, in the
  // order of the numbers, by one thread at a time; so is refuse().
  void enroll(Operation& operation);
  // For collectives that something else carries (a GPU), whether or not the group is closed. record() when
  // one is called; examine() again and again while it is under way, with a vigil of its own: why it cannot
  // end, if that is known. compare() looks only at what the ranks called. examine() and compare() of one
  // vigil: one thread at a time.
  void record(const Operation& operation);
  Vigil begin_vigil() const;
  std::optional<Error> examine(const Operation& operation, Vigil& vigil,
                               std::chrono::steady_clock::time_point now);
  std::optional<Error> compare(const Operation& operation, Vigil& vigil);
  // Of a message that waits: whether its other end is on another kind of device.
  std::optional<Error> compare_message(const Operation& operation);
  // The same for a caller that waits on the host for it to begin, which a closed group ends too.
  std::optional<Error> look_after(const Operation& operation, Vigil& vigil,
                                  std::chrono::steady_clock::time_point now);
  // The loss of a peer, if that is what lies behind an error of a transport or of the store. May take a
  // second.
  Error with_its_reason(const Error& cause);
  // Whether the look that examine() has just taken was one at which stalled ranks compare: once a second.
  bool is_time_to_compare(const Vigil& vigil, std::chrono::steady_clock::time_point now) const;

  // Numbers collectives in the order of the calls; every rank takes one for every call, refused ones
  // included.
  std::uint64_t next_sequence() { return sequence_.fetch_add(1, std::memory_order_relaxed) + 1; }
  std::uint64_t sequence() const { return sequence_.load(std::memory_order_relaxed); }

  // Runs a collective to its end. Throws Error; then `buffers_free` says whether the buffers may be released.
  // `turn`: held by who numbers the calls of several threads; unlocked when this one has its place among
  // them.
  void run(const Operation& operation, bool& buffers_free, std::unique_lock<std::mutex>* turn = nullptr);
  // Queues a collective.
  void submit(std::shared_ptr<Task> task);
  // Posts a message. Those with a gate are posted in the order of the calls, by the progress thread.
  void post(std::shared_ptr<Task> task);
  // Blocks until the task is finished; false when `timeout` passes first (zero: the operation's own deadline
  // rules).
  bool wait(const Task& task, std::chrono::milliseconds timeout);

  // Moves everything in flight on. True while something remains. Called by the progress thread and by
  // waiters.
  bool drive(bool& moved);

  // A rank refuses an operation on its own, before it began: tells the peers, who may already wait in it.
  Error refuse(const Operation& operation, const Error& cause);
  // What somebody else carries has failed: closes the group, and tells the peers.
  Error give_up(const Operation& operation, const Error& cause);
  // Why the group is closed to every call, if it is. Error::kind() is that of the first failure, or kClosed.
  std::optional<Error> failure() const;
  // Throws the error that calls get once the group is closed.
  void check_open() const;
  // Adds group, rank, operation and sequence number to an error.
  Error explain(const Operation& operation, const Error& cause) const;

  // No operation is accepted from now on; those in flight fail with ErrorKind::kClosed. Idempotent, needs no
  // peer. `tell`: the peers, who may wait for this rank.
  void close(const std::string& why, bool tell = false);

 private:
  using Clock = std::chrono::steady_clock;

  void check_open_locked() const;
  void start(const Operation& operation);
  std::optional<Error> look_for_dead(const Operation& operation, Vigil& vigil);
  std::optional<Error> closed_by_peer(const Operation& operation, Vigil& vigil);
  void close_after(const Operation& operation, const Error& cause, bool tell);
  Error fail(const Operation& operation, const Error& noticed, const Vigil& vigil, bool buffers_free);
  void finish(Task& task, std::string_view route, std::optional<Error> error, bool buffers_free);
  bool drive_collective(Clock::time_point now, bool& moved);
  bool drive_messages(Clock::time_point now, bool& moved);
  bool drive_gated(std::deque<std::shared_ptr<Task>>& gated, bool& moved);
  bool begin_message(Task& task);
  Error not_begun(const Task& task, const Error& error);
  std::string label(const Operation& operation) const;
  std::string prefix(const Operation& operation) const;

  const CommunicatorSettings settings_;
  const std::unique_ptr<Links> links_;
  const int rank_, size_;
  Rules routes_;
  Statistics statistics_;
  const std::shared_ptr<StallBoard> board_;
  const std::chrono::milliseconds stall_;
  std::atomic<std::uint64_t> sequence_{0};
  std::mutex history_mutex_;   // a leaf; guards the next
  std::uint64_t history_ = 0;  // see enroll()

  mutable std::mutex mutex_;  // guards what follows up to the blank line
  bool inline_running_ = false;
  std::deque<std::shared_ptr<Task>> queue_;                 // collectives; the head may be running
  std::vector<std::shared_ptr<Task>> posted_;               // messages that drive() has not taken over yet
  std::array<std::deque<std::shared_ptr<Task>>, 2> gated_;  // sends and receives that were not begun yet
  std::optional<Error> closed_;                             // what calls get
  std::optional<Error> failure_;                            // what closed it

  std::atomic<bool> closing_{false};
  std::mutex drive_mutex_;  // guards what follows
  Collective collective_;   // also used by run(), while inline_running_ keeps drive() away from it
  bool head_running_ = false;
  std::vector<std::shared_ptr<Task>> messages_;
};

}  // namespace altorch
