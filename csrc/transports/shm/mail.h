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
// The receiver sets an offer's word to kBeingCopied with acquire before it reads the sender's
// memory, and to kCopied with release after it. The sender loads it with acquire before it says
// that the message has left. The buffer of a withdrawn offer may change at once, so a fence keeps
// those changes behind the withdrawal: a receiver that has read any of them no longer finds
// kBeingCopied.
//
// Thread rules: one thread at a time for each rank.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>

#include "base/wait_target.h"
#include "transports/shm/peer_copy.h"

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

// The state of one offer, in the sender's table. A number is used once, so the receiver never
// mistakes an old offer for a new one.
//
//   sender      stores kOpen, then puts a frame with the number and the place
//   receiver    kOpen -> kBeingCopied, copies, -> kCopied, and rings the sender's doorbell
//   sender      cancels: kOpen or kBeingCopied -> kWithdrawn; the receiver discards what it copied
//
// After kCopied or kWithdrawn the sender may use the buffer and the place again.
struct Offer {
  enum State : std::uint64_t { kOpen = 0, kBeingCopied = 1, kCopied = 2, kWithdrawn = 3 };
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
  // The most bytes that one frame may bring (Frame::part).
  std::size_t largest() const { return ring_bytes_ / 2 - sizeof(Frame); }

  // Copies the frame and the frame.part bytes at `data` into the ring to `peer`, and rings the
  // peer's doorbell. False: the ring has no room now, and nothing was written.
  bool put(int peer, const Frame& frame, const void* data);
  // The oldest frame of `peer`, or nothing. Its bytes lie in one piece, in the ring, and stay until
  // drop(). The frame itself is a copy, which the peer cannot change any more. Throws
  // Error(kTransport) if the ring holds no valid frame.
  struct Received {
    Frame frame;
    const std::byte* data;
  };
  std::optional<Received> oldest(int peer);
  // Frees the room of the frame that oldest(peer) returned last, and rings the peer's doorbell.
  void drop(int peer, const Frame& frame);

  // The state of the offer at a place in the table of rank `of`.
  std::atomic<std::uint64_t>& offer(int of, std::uint64_t place) const;

  // Raised by what peers do from now on: put(), drop() and tell() to this rank. A caller takes it
  // before it looks at the rings.
  WaitTarget doorbell() const;
  // Rings the doorbell of `peer`.
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
  PeerCopy peer_copy_;
  std::unique_ptr<Ends[]> to_, from_;  // by peer
};

}  // namespace altorch::shm
