// SPDX-License-Identifier: BSD-3-Clause
// A process group as the engine sees it: a group (group.h), the links between its ranks, and what
// is under way on host memory.
//
// Collectives run one after another, in the order of the calls (collective_queue.h); messages are
// independent of them (point_to_point.h). The progress thread drives asynchronous operations, and
// so does each thread that waits for one. Lock order: drive_mutex_ before everything else; the
// mutexes of the group, of the queue and of the messages are leaves. Thread rules: any thread.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>

#include "runtime/collective_queue.h"
#include "runtime/group.h"
#include "runtime/one_sided.h"
#include "runtime/point_to_point.h"
#include "runtime/tag_layout.h"
#include "runtime/task.h"
#include "runtime/watchdog.h"
#include "transports/links.h"

namespace altorch {

class Communicator : public Group, public std::enable_shared_from_this<Communicator> {
 public:
  Communicator(Membership membership, std::unique_ptr<Links> links);
  ~Communicator();

  const char* transport() const { return links_->transport(); }
  TagLayout tags() const { return TagLayout(links_->channel().max_tag()); }
  Watchdog& watchdog() { return watchdog_; }
  Links& links() { return *links_; }
  // The group's one-sided access. The first call makes it.
  OneSided& one_sided(std::unique_ptr<OneSided> (*make)());

  // The place of one synchronous collective in the order of the group's collectives. The caller of
  // reserve() calls run() exactly once. The group begins no later collective before that.
  class Place {
   public:
    // Blocks until the collective is done. If it fails, the group is closed and run() throws Error.
    // Sets `buffers_free`; false: the caller keeps the buffers until the process ends.
    void run(bool& buffers_free);

   private:
    friend class Communicator;
    Communicator* group;
    const Operation* operation;
    std::shared_ptr<Task> queued;  // null: no other collective was in flight, so run() runs the call itself
  };
  // Reserves the next place, and does not wait for other collectives. Threads call it in the order
  // of the sequence numbers, so a caller takes both under one lock. If another collective is in
  // flight, the call is queued, and the progress thread may begin it before run(): `operation` and
  // its buffers must stay valid from here until run() has ended. Throws Error if the group is
  // closed; then no place is reserved.
  Place reserve(const Operation& operation);
  // reserve() and Place::run().
  void run(const Operation& operation, bool& buffers_free) { reserve(operation).run(buffers_free); }
  // Tries to complete a small asynchronous collective (up to 64 KiB) on the calling thread, if no
  // other collective is in progress. Call it in the order of the sequence numbers. True: it is
  // done. False: it has not ended well yet, and may have begun; the caller must submit() the task
  // next, which then holds the error, if any. Throws nothing.
  bool try_inline(Task& task);
  // Queues a collective.
  void submit(std::shared_ptr<Task> task);
  // As try_inline(), for an asynchronous message without a gate. False: the caller must post() the
  // task next.
  bool attempt_message(Task& task);
  // Posts a message. A message with a gate is posted when the gate has opened, in the order of the
  // calls, by the thread that drives the group.
  void post(std::shared_ptr<Task> task);
  // Blocks until the task is finished. Returns false if `timeout` passes first; zero: only the
  // operation's own timeout counts.
  bool wait(const Task& task, std::chrono::milliseconds timeout);

  // What ALTORCH_ROUTE and ALTORCH_TUNED said when the group was made.
  const Rules& rules() const { return collectives_.rules(); }

  // Seconds that a collective on host memory would take; it is not run.
  double estimate(const Operation& operation) const { return collectives_.collective().estimate(operation); }

  // Advances everything in flight. True while something is in flight. Called by the progress thread
  // and by waiting threads.
  bool drive(Driven& found);

 private:
  const std::unique_ptr<Links> links_;
  Watchdog watchdog_;
  std::mutex drive_mutex_;
  CollectiveQueue collectives_;
  PointToPoint messages_;
  std::once_flag one_sided_once_;
  std::unique_ptr<OneSided> one_sided_owner_;
  std::atomic<OneSided*> one_sided_{nullptr};  // null: no window was opened
};

}  // namespace altorch
