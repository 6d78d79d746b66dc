// Waits for signals that streams have been given, looked after: the host has gone on, so that somebody else must see that
// the peer is lost or a deadline has passed. Whoever does lets them go on, and closes the group.
//
// Nothing here asks the device anything. Thread rules: any thread; look() by one at a time.
#pragma once

#include <deque>
#include <map>
#include <mutex>
#include <optional>
#include <utility>

#include "engine/communicator.h"
#include "engine/on_error.h"
#include "transports/window.h"

namespace altorch {

class StreamWaits {
 public:
  StreamWaits(Communicator& group, StreamOrdered& streams, OnError on_error)
      : group_(group), streams_(streams), on_error_(on_error) {}

  // Enqueues it. `operation` describes it, deadline and all. Throws Error.
  void add(const Operation& operation, const WindowCall& call);
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

  Communicator& group_;
  StreamOrdered& streams_;
  const OnError on_error_;
  std::mutex mutex_;  // guards what follows
  std::map<Place, std::uint32_t> numbers_;
  std::deque<Entry> entries_;
  std::map<Place, InGraphs> in_graphs_;
  bool over_ = false;
  std::optional<Error> failure_;
};

}  // namespace altorch
