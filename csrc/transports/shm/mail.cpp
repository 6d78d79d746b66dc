// SPDX-License-Identifier: BSD-3-Clause
#include "transports/shm/mail.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <string>

#include "base/error.h"

namespace altorch::shm {
namespace {

// A frame of this many bytes says that the next one starts at the ring's beginning.
constexpr std::uint64_t kWrap = ~std::uint64_t{0};

// What lies before the doorbells: the tables.
std::size_t table_bytes(int size) {
  return static_cast<std::size_t>(size) * Mail::kPlaces * sizeof(std::uint64_t);
}

}  // namespace

Mail::Mail(std::byte* memory, int rank, int size, std::size_t ring_bytes, bool crowded)
    : rank_(rank),
      size_(size),
      offers_(reinterpret_cast<std::atomic<std::uint64_t>*>(memory)),
      doorbells_(reinterpret_cast<Doorbell*>(memory + table_bytes(size))),
      rings_(reinterpret_cast<Ring*>(doorbells_ + size)),
      bytes_(reinterpret_cast<std::byte*>(rings_ + pair(size, 0))),
      ring_bytes_(ring_bytes),
      is_crowded_(crowded),
      to_(std::make_unique<Ends[]>(static_cast<std::size_t>(size))),
      from_(std::make_unique<Ends[]>(static_cast<std::size_t>(size))) {}

// Pages that no message has touched take no memory.
std::size_t Mail::ring_bytes(int size, std::size_t limit) {
  constexpr std::size_t kLeast = 1 << 10, kMost = 64 << 10;
  const auto pairs = static_cast<std::size_t>(size) * static_cast<std::size_t>(size);
  return std::clamp(std::bit_floor(limit / pairs), kLeast, kMost);
}

std::size_t Mail::bytes(int size, std::size_t ring_bytes) {
  const auto ranks = static_cast<std::size_t>(size);
  return table_bytes(size) + ranks * (sizeof(Doorbell) + ranks * (sizeof(Ring) + ring_bytes));
}

std::atomic<std::uint64_t>& Mail::offer(int of, std::uint64_t place) const {
  return offers_[static_cast<std::size_t>(of) * kPlaces + place];
}

std::size_t Mail::room_of(std::size_t bytes) { return sizeof(Frame) + (bytes + 63) / 64 * 64; }

bool Mail::put(int peer, const Frame& frame, const void* data) {
  Ring& there = ring(rank_, peer);
  Ends& ends = to_[static_cast<std::size_t>(peer)];
  const std::size_t room = room_of(frame.part);
  const std::size_t at = ends.written % ring_bytes_;
  const std::size_t skipped = at + room > ring_bytes_ ? ring_bytes_ - at : 0;
  if (ends.written + skipped + room - ends.read > ring_bytes_) {
    ends.read = there.read.load(std::memory_order_acquire);
    if (ends.written + skipped + room - ends.read > ring_bytes_) return false;
  }
  std::byte* const base = bytes_of(rank_, peer);
  if (skipped > 0) reinterpret_cast<Frame*>(base + at)->bytes = kWrap;
  ends.written += skipped;
  std::byte* const to = base + ends.written % ring_bytes_;
  std::memcpy(to, &frame, sizeof frame);
  peer_copy_.copy(to + sizeof frame, data, static_cast<std::int64_t>(frame.part));
  ends.written += room;
  there.written.store(ends.written, std::memory_order_release);
  tell(peer);
  return true;
}

std::optional<Mail::Received> Mail::oldest(int peer) {
  Ends& ends = from_[static_cast<std::size_t>(peer)];
  if (ends.read == ends.written) ends.written = ring(peer, rank_).written.load(std::memory_order_acquire);
  if (ends.read == ends.written) return std::nullopt;
  const std::byte* const base = bytes_of(peer, rank_);
  std::size_t at = ends.read % ring_bytes_;
  Frame frame;
  std::memcpy(&frame, base + at, sizeof frame);
  if (frame.bytes == kWrap && at > 0) {
    ends.read += ring_bytes_ - at;
    at = 0;
    std::memcpy(&frame, base, sizeof frame);
  }
  // A peer that is broken may have written anything, and any number of bytes.
  const std::uint64_t there = ends.written - ends.read;
  const bool fits = frame.part <= largest() && room_of(frame.part) <= std::min(there, ring_bytes_ - at);
  if (!fits || there > ring_bytes_ || frame.part > frame.bytes || frame.place >= kPlaces)
    throw Error(ErrorKind::kTransport, "what rank " + std::to_string(peer) +
                                           " of the group wrote into the shared memory is no message");
  return Received{frame, base + at + sizeof frame};
}

void Mail::drop(int peer, const Frame& frame) {
  Ends& ends = from_[static_cast<std::size_t>(peer)];
  ends.read += room_of(frame.part);
  ring(peer, rank_).read.store(ends.read, std::memory_order_release);
  tell(peer);
}

WaitTarget Mail::doorbell() const {
  Doorbell& own = doorbells_[rank_];
  return {own.rings, own.sleepers, own.rings.load(std::memory_order_seq_cst) + 1, is_crowded_};
}

}  // namespace altorch::shm
