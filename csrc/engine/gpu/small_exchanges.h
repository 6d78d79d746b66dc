// SPDX-License-Identifier: BSD-3-Clause
// Small collectives, and small blocks between pairs of ranks, in one kernel per rank over memory that the ranks
// share: pinned on the host, where a rank posts once for all (host_staged), or of their GPUs, where it posts for
// each of the others (peer). What is counted lives on the device, so that all of it can be captured into graphs.
#pragma once

#include <optional>
#include <vector>

#include "device/device.h"
#include "engine/operation.h"

namespace altorch {

// How a place is divided: in words of 8 bytes, which carry 4.
struct PlaceShape {
  static constexpr std::int64_t kDataBytes = 4;  // of a word

  std::int64_t part = 0;    // of a region, for one receiver, if the receivers get different data
  std::int64_t region = 0;  // of a block of threads
  std::int64_t half = 0;    // of one exchange; there are two
  int blocks = 1;

  // For `bytes` of data in all, for `parts` ranks.
  static PlaceShape of(std::size_t bytes, int parts, int blocks);
  std::size_t bytes() const { return static_cast<std::size_t>(2 * half) * sizeof(std::uint64_t); }
  // Blocks for so many bytes: enough that each has room, and few.
  int blocks_for(std::int64_t bytes, std::int64_t room) const;
};

// Thread rules: one thread at a time.
class SmallExchanges {
 public:
  // Zero at first, all of it. By rank; where each of them posts for all, only this one's in posts.
  struct Places {
    bool for_all = false;  // a rank posts once, in parts
    PlaceShape shape, pair_shape;
    std::vector<std::uint64_t*> posts;        // this rank's, for each
    std::vector<const std::uint64_t*> areas;  // theirs, for this rank
    std::vector<std::uint64_t*> pair_posts;
    std::vector<const std::uint64_t*> pair_areas;
  };

  // What a place of pairs is divided into.
  static PlaceShape pair_shape(int ranks, std::size_t bytes, int blocks = SmallExchange::kMostBlocks);
  // Of a vector collective with even blocks: whether no rank posts more than so much.
  static bool fits(const Operation& operation, int ranks, std::size_t bytes);

  // An even all_to_all with blocks of at most so many bytes.
  static bool goes_in_pairs(const Operation& operation, std::size_t pair_bytes);

  // `pair_bytes`: of one rank for another, at most; 0: there are no pairs. Throws Error(kUnsupported).
  SmallExchanges(Device& device, Places places, int rank, int ranks, std::size_t pair_bytes,
                 const std::uint32_t* aborted);

  std::size_t pair_bytes() const { return pair_bytes_; }
  // One that fits().
  void enqueue(const Operation& operation, Stream stream);
  // The blocks of an all_to_all that two ranks have for each other, where neither is larger than pair_bytes().
  // Returns what is left of the operation, if anything is.
  std::optional<Operation> enqueue_pairs(const Operation& operation, Stream stream);

 private:
  Device& device_;
  const Places places_;
  const int rank_, ranks_;
  const std::size_t pair_bytes_;
  const std::uint32_t* const aborted_;
  const DeviceMemory numbers_;  // of exchanges, by block, then by rank and block
};

}  // namespace altorch
