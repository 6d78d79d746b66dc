// SPDX-License-Identifier: BSD-3-Clause
// Waits for signals that streams have been given, looked after: the host has gone on, so that somebody else must see that
// the peer is lost or a deadline has passed. Whoever does lets them go on, and closes the group.
//
// Nothing here asks the device anything. Thread rules: any thread; look() by one at a time.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>

#include "engine/communicator.h"
#include "engine/gpu/on_error.h"
#include "transports/window.h"

namespace altorch {

class StreamWaits {
 public:
  StreamWaits(Communicator& group, StreamOrdered& streams, OnError on_error)
      : group_(group), alive_(group.weak_from_this()), streams_(streams), on_error_(on_error) {}

  // Enqueues it. `operation` describes it, deadline and all. `entered`: called when it is looked after, before it is enqueued,
  // which may hold the host up. Throws Error.
  void add(const Operation& operation, const WindowCall& call, const std::function<void()>& entered = {});
  // The same of an access that has been enqueued and holds its stream up (WindowCall::held_at).
  void watch(const Operation& operation, const WindowCall& call);
  // False when nothing is left to look after.
  bool look();
  // Nothing waits any more: the window is closed.
  void stop();
  // Why waits were given up, if any were.
  std::optional<Error> failure();

 private:
  using Place = std::pair<int, int>;  // source, slot
  struct Entry {
    Operation operation;
    Place place;
    std::uint32_t number;  // of those of its place
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
  // With mutex_ held.
  std::optional<Trouble> trouble();
  void end(const Trouble& found);

  void enter(const Operation& operation, const Place& place, std::uint32_t number);
  void forget_what_is_over();

  Communicator& group_;
  const std::weak_ptr<Communicator> alive_;  // who looks may outlive it
  StreamOrdered& streams_;
  const OnError on_error_;
  std::mutex adding_;  // one by one, so that one that is refused leaves no gap in the numbers
  std::mutex mutex_;   // guards what follows
  std::map<Place, std::uint32_t> numbers_;
  std::deque<Entry> entries_;
  std::size_t many_ = 0;  // so many are looked through for those that are over
  std::map<Place, InGraphs> in_graphs_;
  bool over_ = false;  // nothing is looked after any more, but that what waits does go on
  std::optional<Error> failure_;
};

}  // namespace altorch
