// SPDX-License-Identifier: BSD-3-Clause
// Mailbox rings of the ranks of a node: one ring for every ordered pair of ranks, and a table of
// what each rank offers.
//
// A small message is copied into its ring. For a large message the ring gets an offer: the receiver
// copies the message from the sender's memory, once (single_copy.h). The sender's table holds the
// state of the offer, so no answer is sent. If processes may not copy from each other, a large
// message goes through the ring in parts, one after another.
//
// Memory order: a ring's `written` is stored with release after the bytes before it, `read` after
// they are copied out; either is loaded with acquire by the other side. So frames are plain memory.
// An offer's word is taken with acquire before the sender's memory is read, and let go with release
// after it; the sender loads it with acquire before it says that the message has left. One that is
// withdrawn may change at once, so a fence keeps those changes behind the withdrawal: a receiver
// that has read any of them no longer finds the word as it left it.
//
// Thread rules: one thread at a time for each rank.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>

#include "base/wait_target.h"

namespace altorch::shm {

// What stands in a ring, before the bytes that it brings.
struct alignas(64) Frame {
  std::int64_t tag = 0;
  std::uint64_t bytes = 0;    // of the message
  std::uint64_t part = 0;     // of them, that follow
  std::uint64_t address = 0;  // in the sender's memory
  std::uint64_t offer = 0;    // its number; 0: none
  std::uint64_t place = 0;    // in the sender's table
  std::uint64_t aborted = 0;  // 1: the rest of the message will not come
  std::uint64_t type = 0;     // of its elements, as a request's
};
static_assert(sizeof(Frame) == 64);

// The state of an offer in the sender's table. A number is used once, so that an old offer is never
// taken for a new one.
struct Offer {
  enum State : std::uint64_t { kOpen = 0, kBeingCopied = 1, kTaken = 2, kWithdrawn = 3 };
  static constexpr std::uint64_t word(std::uint64_t number, State state) { return number << 2 | state; }
};

class Mail {
 public:
  static constexpr std::uint32_t kPlaces = 256;  // offers of a rank at a time

  // `crowded`: as in WaitTarget.
  Mail(std::byte* memory, int rank, int size, std::size_t ring_bytes, bool crowded = false);
  static std::size_t ring_bytes(int size, std::size_t limit);
  static std::size_t bytes(int size, std::size_t ring_bytes);

  int rank() const { return rank_; }
  int size() const { return size_; }
  // The most that one frame brings.
  std::size_t largest() const { return ring_bytes_ / 2 - sizeof(Frame); }

  // To `peer`. False when the ring has no room now. `data`: frame.part bytes.
  bool put(int peer, const Frame& frame, const void* data);
  // The oldest frame of `peer`, or nothing. Its bytes lie in one piece, in the ring, and stay until
  // drop(). The frame itself is a copy, which the peer cannot change any more. Throws
  // Error(kTransport) if the ring holds no valid frame.
  struct Received {
    Frame frame;
    const std::byte* data;
  };
  std::optional<Received> oldest(int peer);
  void drop(int peer, const Frame& frame);

  // The state of the offer at a place in the table of rank `of`.
  std::atomic<std::uint64_t>& offer(int of, std::uint64_t place) const;

  // Raised by whatever happens from now on: a put() or drop() of a peer, and tell().
  WaitTarget doorbell() const;
  void tell(int peer) { WaitTarget::raise(doorbells_[peer].rings, doorbells_[peer].sleepers); }

 private:
  struct Ring {
    alignas(128) std::atomic<std::uint64_t> written;
    alignas(128) std::atomic<std::uint64_t> read;
  };
  struct alignas(128) Doorbell {
    WaitTarget::Number rings;
    WaitTarget::Sleepers sleepers;
  };
  struct Ends {
    std::uint64_t written = 0, read = 0;  // as last seen of the other side, or as this side left it
  };

  std::size_t pair(int from, int to) const {
    return static_cast<std::size_t>(from) * static_cast<std::size_t>(size_) + static_cast<std::size_t>(to);
  }
  Ring& ring(int from, int to) const { return rings_[pair(from, to)]; }
  std::byte* bytes_of(int from, int to) const { return bytes_ + pair(from, to) * ring_bytes_; }
  static std::size_t room_of(std::size_t bytes);

  const int rank_, size_;
  std::atomic<std::uint64_t>* const offers_;
  Doorbell* const doorbells_;
  Ring* const rings_;
  std::byte* const bytes_;
  const std::size_t ring_bytes_;
  const bool is_crowded_;
  std::unique_ptr<Ends[]> to_, from_;  // by peer
};

}  // namespace altorch::shm
