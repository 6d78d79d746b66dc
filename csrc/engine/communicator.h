// SPDX-License-Identifier: BSD-3-Clause
// A process group as the engine sees it: a group (group.h), the links between its ranks, and what is under way
// on host memory.
//
// Collectives run one after another, in the order of the calls (collective_queue.h); messages are independent
// of them (point_to_point.h). What is asynchronous the progress thread moves on, and whoever waits helps.
// Lock order: drive_mutex_ before everything else; the mutexes of the group, of the queue and of the messages
// are leaves. Thread rules: any thread.
#pragma once

#include <memory>
#include <mutex>

#include "engine/collective_queue.h"
#include "engine/group.h"
#include "engine/point_to_point.h"
#include "engine/task.h"
#include "engine/watchdog.h"
#include "engine/window/windows.h"
#include "transports/links.h"

namespace altorch {

class Communicator : public Group, public std::enable_shared_from_this<Communicator> {
 public:
  Communicator(Membership membership, std::unique_ptr<Links> links);
  ~Communicator();

  const char* transport() const { return links_->transport(); }
  std::int64_t max_message_tag() const;
  Watchdog& watchdog() { return watchdog_; }
  Links& links() { return *links_; }
  Windows& windows() { return windows_; }

  // The place of a collective that its caller waits for, among those of all threads. What is taken must be
  // run.
  class Place {
   public:
    // Runs the collective to its end. Throws Error; then `buffers_free` says whether the buffers may be
    // released.
    void run(bool& buffers_free);

   private:
    friend class Communicator;
    Communicator* group;
    const Operation* operation;
    std::shared_ptr<Task> queued;  // null: it is the only one, and runs on the calling thread
  };
  // In the order of the numbers. The operation must outlive the run. Throws Error.
  Place take_place(const Operation& operation);
  // Both at once.
  void run(const Operation& operation, bool& buffers_free) { take_place(operation).run(buffers_free); }
  // A small collective that nobody waits for yet, begun on the calling thread where nothing is under way. True: it
  // is done, and the task has served; otherwise it must be submitted next.
  bool attempt(Task& task);
  // Queues a collective.
  void submit(std::shared_ptr<Task> task);
  // A message that nobody waits for yet, begun at once. As attempt() of a collective; what is left must be posted next.
  bool attempt_message(Task& task);
  // Posts a message. Those with a gate are posted in the order of the calls, by the progress thread.
  void post(std::shared_ptr<Task> task);
  // Blocks until the task is finished; false when `timeout` passes first (zero: the operation's own deadline
  // rules).
  bool wait(const Task& task, std::chrono::milliseconds timeout);

  // Moves everything in flight on. True while something remains. Called by the progress thread and by
  // waiters.
  bool drive(Driven& found);

 private:
  const std::unique_ptr<Links> links_;
  Watchdog watchdog_;
  std::mutex drive_mutex_;
  CollectiveQueue collectives_;
  PointToPoint messages_;
  Windows windows_;
};

}  // namespace altorch
