// SPDX-License-Identifier: BSD-3-Clause
// Looks after waits for signals that were enqueued on streams. The calling thread does not wait for
// them. So a watch thread (backend/cuda/cuda_watch.h) calls look(), which checks whether the peer
// is lost or a deadline has passed. If so, look() lets the streams go on, and closes the group.
//
// Nothing here queries the device. Thread rules: any thread; look() by one thread at a time.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>

#include "gpu/on_error.h"
#include "runtime/communicator.h"
#include "transports/window.h"

namespace altorch {

class StreamWaits {
 public:
  StreamWaits(Communicator& group, StreamOrdered& streams, OnError on_error)
      : group_(group), alive_(group.weak_from_this()), streams_(streams), on_error_(on_error) {}

  // Enqueues a wait. `operation` describes it, with its deadline. `entered`: called when the wait
  // is looked after, and before it is enqueued, because enqueueing may block. Throws Error.
  void add(const Operation& operation, const WindowCall& call, const std::function<void()>& entered = {});
  // Looks after an access that has been enqueued, and that blocks its stream (WindowCall::held_at).
  void watch(const Operation& operation, const WindowCall& call);
  // Checks all waits. False: nothing is left to look after.
  bool look();
  // The window is closed: no wait is looked after any more.
  void stop();
  // Why waits were aborted, if any were.
  std::optional<Error> failure();

 private:
  using Place = std::pair<int, int>;  // source, slot
  struct Entry {
    Operation operation;
    Place place;
    std::uint32_t number;  // its number among the waits of its place
    Wait wait;
  };
  struct InGraphs {
    Operation operation;
    std::uint32_t over = 0;
    std::optional<Wait> wait;  // of one that has begun
  };
  struct Trouble {
    Operation operation;
    Error cause;
    Wait wait;
  };
  // Needs mutex_.
  std::optional<Trouble> trouble();
  void end(const Trouble& found);

  void enter(const Operation& operation, const Place& place, std::uint32_t number);
  void forget_what_is_over();

  Communicator& group_;
  const std::weak_ptr<Communicator> alive_;  // the group: the watch thread may outlive it
  StreamOrdered& streams_;
  const OnError on_error_;
  std::mutex adding_;  // held in add(), so that a refused wait leaves no gap in the numbers
  std::mutex mutex_;   // guards what follows
  std::map<Place, std::uint32_t> numbers_;
  std::deque<Entry> entries_;
  std::size_t many_ = 0;  // at so many entries, those that are over are removed
  std::map<Place, InGraphs> in_graphs_;
  bool over_ = false;  // waits are not checked any more; look() only lets their streams go on
  std::optional<Error> failure_;
};

}  // namespace altorch
