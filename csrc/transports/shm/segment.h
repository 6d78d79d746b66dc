// SPDX-License-Identifier: BSD-3-Clause
// The memory that the ranks of one group on one node share, and how they hand over data in it.
//
// A collective is a number of steps, and steps are counted through the life of the group. In each
// step a rank writes what its peers want into its area, and publishes the step's number on its
// line. It reads the area of a peer when the peer's line shows that number. A rank has two areas
// and two lines, for even and odd steps. It writes to those of step n when every peer has published
// step n - 1: then each peer has read what step n - 2 left there.
//
// Memory order: a line's step is stored with release after the area is written and after the areas
// of earlier steps are read. It is loaded with acquire before an area is read or written again. The
// rest of a step (its call, its word, the bytes on the line, the counts) goes the same way. So all
// of it is plain memory: no rank writes where another rank may be reading. That also holds after
// aborted calls, as long as a rank reads only what belongs to step n until it has published step n
// + 1.
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

class Segment {
 public:
  static constexpr std::size_t kInlineBytes = 40;
  static constexpr int kMostRanks = 256;

  // `memory`: bytes(size, area_bytes) of it, zero when the group was made. `cores`: of all ranks
  // together, where that is known.
  Segment(std::shared_ptr<std::byte> memory, int rank, int size, std::size_t area_bytes,
          std::optional<int> cores = {});

  // The size of each area, so that the segment of `size` ranks takes about `limit` bytes.
  static std::size_t area_bytes(int size, std::size_t limit);
  static std::size_t bytes(int size, std::size_t area_bytes);

  int rank() const { return rank_; }
  int size() const { return size_; }
  std::size_t area_bytes() const { return area_bytes_; }
  // The same on all ranks.
  bool has_core_each() const { return has_core_each_; }
  std::byte* area(int rank, std::uint64_t step) const;
  // A number for every rank, beside the area.
  std::int64_t* counts(int rank, std::uint64_t step) const;
  // Copy into this rank's areas; the second one in calls in which this rank alone writes.
  PeerCopy& peer_copy() { return peer_copy_; }
  PeerCopy& eager_copy() { return eager_copy_; }
  // A few bytes on the line itself: they come with the number of the step.
  std::byte* inlined(int rank, std::uint64_t step) const { return line(rank, step).data; }

  // Whether all ranks have published `step` or a later one.
  bool all_at(std::uint64_t step);
  // `call`: the same on all ranks that are in the same call. `word`: for the others to read.
  void publish(std::uint64_t step, std::uint64_t call, std::uint64_t word);
  // Whether `rank` has published this step of this call. One that is in another call never has.
  bool is_at(int rank, std::uint64_t step, std::uint64_t call) const {
    const Line& theirs = line(rank, step);
    return theirs.step.load(std::memory_order_acquire) == step && theirs.call == call;
  }
  // Whether all other ranks have published this step of this call.
  bool all_are_at(std::uint64_t step, std::uint64_t call);
  // After all_at() or all_are_at() returned false: a rank that has not published the step.
  int missing() const { return next_; }
  // Raised when `rank` publishes this step, of any call.
  WaitTarget wait_target(int rank, std::uint64_t step) const {
    return {line(rank, step).step, doorbells_[rank].sleepers, step, is_crowded_};
  }
  // The word of this step. Valid once is_at() has returned true.
  std::uint64_t word(int rank, std::uint64_t step) const { return line(rank, step).word; }

 private:
  // 64 bytes: one cache line.
  struct alignas(64) Line {
    WaitTarget::Number step;
    std::uint64_t call;
    std::uint64_t word;
    std::byte data[kInlineBytes];
  };
  static_assert(sizeof(Line) == 64 && WaitTarget::Number::is_always_lock_free);

  // How many threads sleep until a rank publishes.
  struct alignas(64) Doorbell {
    WaitTarget::Sleepers sleepers;
  };

  // Two lines of 64 bytes, fetched together by x86, belong to one rank.
  Line& line(int rank, std::uint64_t step) const {
    return lines_[2 * static_cast<std::size_t>(rank) + step % 2];
  }

  const std::shared_ptr<std::byte> memory_;
  Line* const lines_;
  Doorbell* const doorbells_;
  std::int64_t* const counts_;
  std::byte* const areas_;
  const int rank_, size_;
  const std::size_t area_bytes_;
  const bool is_crowded_, has_core_each_;
  PeerCopy peer_copy_, eager_copy_{PeerCopy::kAlone};
  // What is known of the other ranks: all have published `seen_`, and ranks below `next_` have
  // published `asked_`.
  std::uint64_t seen_ = 0;
  std::uint64_t asked_ = 0;
  int next_ = 0;
};

}  // namespace altorch::shm
