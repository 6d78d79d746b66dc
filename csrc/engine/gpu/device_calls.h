// SPDX-License-Identifier: BSD-3-Clause
// Calls that a group has given to a device, and that are not known to be done. The host has gone on, so that
// somebody else must see that a peer is lost, that a deadline has passed or that the ranks called different
// things; who does ends what hangs, tells the peers, and sees to it that nobody takes what is left for a
// result.
//
// Nothing here asks the device anything. Thread rules: enter() up to entered() or withdraw(), and all_done(), by
// one thread at a time; done_up_to() by one, too, of numbers that had been entered; the others by any.
#pragma once

#include <atomic>
#include <deque>
#include <functional>
#include <mutex>
#include <optional>
#include <vector>

#include "engine/group.h"
#include "engine/gpu/on_error.h"
#include "engine/task.h"
#include "engine/watchdog.h"

namespace altorch {

// What carries the calls.
class DeviceCarrier {
 public:
  virtual ~DeviceCarrier() = default;
  // What went wrong on the way, if anything did. Any thread.
  virtual std::optional<Error> failure() = 0;
  // From now on, what is given up gets its results marked: to be called before abort(). Why it cannot be
  // done, as a clause, or nothing. Any thread; does not call CUDA.
  virtual std::optional<std::string> mark_results() = 0;
  // Ends everything in flight, on this rank only. Idempotent. Any thread.
  virtual void abort(const std::string& why) = 0;
  // The same of what graphs replay, whose results are marked: nobody has said that anything is in flight.
  virtual void end_replays(const std::string& why) = 0;
};

class DeviceCalls {
 public:
  // `tell_waiters`: called when the group has failed, before anything goes on because of it.
  DeviceCalls(Group& group, Watchdog& watchdog, DeviceCarrier& carrier, OnError on_error,
              std::function<void()> tell_waiters);

  // A call is about to be given to a route, which may hold the host up (NCCL connects with peers then).
  void enter(const Operation& operation);
  // The route has it.
  void entered();
  // A route did not take it.
  void withdraw();
  // A graph did, which may be replayed from now on, at any time: nobody says when.
  void captured();

  // The device has come to the end of the first `number` calls that there ever were. How many there were, if
  // some of them are left.
  std::optional<std::uint64_t> done_up_to(std::uint64_t number);
  void all_done();
  std::uint64_t count() const;  // of all that there ever were
  // Numbers (Operation::number) of those that are not known to be done, for who reports them; as far as nobody is looking
  // after them right now. Any thread; does not wait.
  std::vector<std::uint64_t> under_way() const;
  bool idle() const { return idle_.load(); }  // all were done when somebody last said so, and none came since

  std::optional<Error> failure() const;
  void throw_if_failed() const;
  // Asking the device has failed.
  void device_failed(const std::string& what);

  // Ends what hangs. False when nothing is under way. May be called for as long as anything is, by a thread
  // that nothing on the device can hold up.
  bool look();
  // The group is destroyed before its calls are done: they have failed, and the peers are not told.
  void end(const Error& cause);
  // Somebody wants them ended.
  void abort(const std::string& why);
  // Lets what still hangs go on, once there is a failure. To be repeated: peers' devices that went on may
  // have held ours up once more.
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

  // All with mutex_ held. The call that was entered last, which is none of those under way after all.
  Call take_back();
  // Why what is under way cannot end, if that is known.
  std::optional<Trouble> trouble(Watchdog::Clock::time_point now);
  // The same of what may be replayed while no call is under way. Nobody may be waiting, so that it is no error yet.
  std::optional<Trouble> trouble_in_graphs(Watchdog::Clock::time_point now);
  Error explained(const Operation& operation, const Error& cause) const;
  // Says what went wrong, to everybody, and ends what is under way.
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
  std::optional<Call> in_graphs_;  // one of those
  Operation last_;
  std::optional<Error> failure_;
  std::optional<Error> device_failure_;
  std::atomic<bool> idle_{true};
};

}  // namespace altorch
