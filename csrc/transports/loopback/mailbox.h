// SPDX-License-Identifier: BSD-3-Clause
// The messages and receives of one rank that have not met yet. Not thread-safe: the world's lock
// guards it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <optional>
#include <vector>

#include "base/error.h"
#include "transports/channel.h"

namespace altorch::loopback {

// A request's id; 0 is none.
using Ticket = std::uint64_t;

struct Message {
  int source;
  std::int64_t tag;
  const void* data;
  std::size_t bytes;
  ElementType type;
  std::uint64_t visible_from;  // poll number
  Ticket sender;               // 0: the sender has been told already, `copy` holds the data
  std::vector<std::byte> copy;
};

struct Receive {
  Ticket ticket;
  int source;  // or kAnySource
  std::int64_t tag;
  void* data;
  std::size_t bytes;
  ElementType type;
  bool exact;
};

// A message that met its receive.
struct Delivery {
  Ticket sender, receiver;
  int source;
  std::optional<Error> error;  // the receiver's
};

class Mailbox {
 public:
  // Messages of one (source, tag) stay in order: a later one is never visible before an earlier
  // one.
  void add(Message message);
  void add(const Receive& receive) { receives_.push_back(receive); }
  // The next pair that can meet at poll `now`, its data moved.
  std::optional<Delivery> deliver(std::uint64_t now);
  void withdraw(Ticket ticket);

 private:
  std::list<Message> messages_;  // oldest first
  std::list<Receive> receives_;  // oldest first
};

}  // namespace altorch::loopback
