// SPDX-License-Identifier: BSD-3-Clause
// The calls of a group that are in flight on a device: enqueued, and not known to be done. The
// calling thread does not wait for them, so a watch thread (backend/cuda/cuda_watch.h) calls
// look(). It checks whether a peer is lost, a deadline has passed, or the ranks called different
// operations. If so, it aborts the calls, tells the peers, and keeps leftover data from being taken
// for results (on_error.h).
//
// Nothing here queries the device. Thread rules: a thread that launches calls enter(), and then one
// of entered(), captured() and withdraw(); one thread launches at a time, and all_done() excludes
// launches. One thread at a time calls done_up_to(), also during a launch. Any thread calls the
// other functions.
#pragma once

#include <atomic>
#include <deque>
#include <functional>
#include <mutex>
#include <optional>
#include <vector>

#include "gpu/on_error.h"
#include "runtime/group.h"
#include "runtime/task.h"
#include "runtime/watchdog.h"

namespace altorch {

// What carries the calls.
class DeviceCarrier {
 public:
  virtual ~DeviceCarrier() = default;
  // What went wrong in a route since, if anything did. Any thread.
  virtual std::optional<Error> failure() = 0;
  // From now on, aborted calls get their results marked (poison). To be called before abort().
  // Returns why that is unsupported, as a clause, or nothing. Any thread; does not call CUDA.
  virtual std::optional<std::string> mark_results() = 0;
  // Aborts everything in flight, on this rank only. Idempotent. Any thread.
  virtual void abort(const std::string& why) = 0;
  // The same for replays of CUDA graphs, but only where their results are marked. The host does not
  // know whether a replay is in flight.
  virtual void end_replays(const std::string& why) = 0;
};

class DeviceCalls {
 public:
  // `tell_waiters`: called when the group has failed, before any stream goes on because of that.
  DeviceCalls(Group& group, Watchdog& watchdog, DeviceCarrier& carrier, OnError on_error,
              std::function<void()> tell_waiters);

  // A call is about to be given to a route, and its deadline counts from here. The route may block
  // the calling thread (NCCL connects to peers then). `operation`: of remembered()
  // (runtime/fingerprint.h), because it is kept longer than the caller's memory.
  void enter(const Operation& operation);
  // The route has enqueued the call.
  void entered();
  // The route did not enqueue the call.
  void withdraw();
  // A CUDA graph has captured the call. From now on the graph may be replayed at any time, without
  // notice to the host.
  void captured();

  // Told by the thread that polls: the device has finished the first `number` calls, as count()
  // counts them. Removes these from the calls in flight. Returns count() if later calls are in
  // flight, and nothing if none is.
  std::optional<std::uint64_t> done_up_to(std::uint64_t number);
  // The device has finished all calls; idle() is true from now on, until the next enter().
  void all_done();
  std::uint64_t count() const;  // enter() so far, without captured and withdrawn calls
  // The Operation::number of each call in flight, for reports. Empty if another thread holds the
  // lock, or after a failure. Any thread; does not wait.
  std::vector<std::uint64_t> under_way() const;
  bool idle() const { return idle_.load(); }  // no call was entered since the last all_done()

  std::optional<Error> failure() const;
  void throw_if_failed() const;
  // A query of the device has failed.
  void device_failed(const std::string& what);

  // Checks the calls in flight, and aborts what hangs: failure() then says why, and further calls
  // release() until the device is idle. May take seconds, for it asks the store and late ranks; may
  // end the process (on_error.h). False: nothing is left to look after. To be called repeatedly
  // until then, by a thread that nothing on the device can block.
  bool look();
  // The group is destroyed before its calls are done: they have failed, and the peers are not told.
  void end(const Error& cause);
  // Aborts the calls because the user asks for it.
  void abort(const std::string& why);
  // Aborts once more what still hangs, if there is a failure. To be repeated: peers' devices that
  // went on may have blocked this rank's device again.
  void release();

 private:
  struct Call {
    Operation operation;  // remembered()
    Wait wait;
  };

  struct Trouble {
    Operation operation;
    Error cause;
  };

  using Lock = std::unique_lock<std::mutex>;

  // Needs mutex_, as the functions below do. Removes the call that was entered last: it is not in
  // flight after all.
  Call take_back();
  Call* find(std::uint64_t number);  // null: it is not in flight
  // Has `ask` question the watchdog about a copy of a call in flight. Lets go of the lock
  // meanwhile, for the store may be slow, and threads launch. Nothing if the call has ended then.
  template <typename Ask>
  std::optional<Trouble> ask_unlocked(Lock& lock, std::uint64_t number, const Ask& ask);
  // Why the calls in flight cannot end, if that is known. Lets go of the lock, as above, but for
  // calls whose deadline has passed: launches then wait, some seconds, and fail.
  std::optional<Trouble> trouble(Lock& lock, Watchdog::Clock::time_point now);
  // The same for graphs that may be replayed while no call is in flight. It is no error yet,
  // because perhaps no thread waits for a replay.
  std::optional<Trouble> trouble_in_graphs(Lock& lock, Watchdog::Clock::time_point now);
  Error explained(const Operation& operation, const Error& cause) const;
  // Tells the waiting threads, the peers and the log what went wrong. Then aborts the calls in
  // flight, or ends the process (on_error.h).
  void fail(const Operation& operation, const Error& cause);

  Group& group_;
  Watchdog& watchdog_;
  DeviceCarrier& carrier_;
  const OnError on_error_;
  const std::function<void()> tell_waiters_;

  mutable std::mutex mutex_;       // guards what follows
  std::deque<Call> calls_;         // in order, the latest of them
  std::uint64_t number_ = 0;       // of the last of them, from 1
  bool entering_ = false;          // the last of them is being given to a route
  std::optional<Call> in_graphs_;  // the latest call that a graph has captured
  Operation last_;
  std::optional<Error> failure_;
  std::optional<Error> device_failure_;
  std::atomic<bool> idle_{true};
};

}  // namespace altorch
