// SPDX-License-Identifier: BSD-3-Clause
// How each collective over a Segment is divided into steps. In each step a rank writes to its own
// area, and then reads the areas of its peers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>

#include "base/call.h"
#include "base/error.h"
#include "base/protocol.h"
#include "base/shape.h"
#include "platform/single_copy.h"
#include "transports/shm/segment.h"

namespace altorch::shm {

// The call in progress.
struct Job {
  Call call;
  Segment* segment = nullptr;
  std::uint64_t first_step = 0;  // in the life of the group
  std::int64_t steps = 0;        // of this call
  // Elements of the largest block that this rank knows of; if ranks_tell(), after the first step of
  // any rank.
  std::int64_t longest_block = 0;
  std::uint64_t word = 0;  // what the others are told with every step: word_of()
  // By rank, where they may read each other's memory; otherwise empty.
  std::span<const Process> processes = {};
  // Blocks of at least so many elements are read from the peer's memory, once; smaller ones go
  // through the areas.
  std::int64_t in_place_from = std::numeric_limits<std::int64_t>::max();
  // By rank; empty: the same.
  std::span<const int> ranks_of_group = {};

  int rank() const { return segment->rank(); }
  int size() const { return segment->size(); }
  // For people.
  int rank_of_group(int rank) const {
    return ranks_of_group.empty() ? rank : ranks_of_group[static_cast<std::size_t>(rank)];
  }
  // Whether ranks may know different sizes of blocks. Then each publishes its counts in the first
  // step, and the number of steps follows from the longest block.
  bool ranks_tell() const { return !all_know_sizes(call.kind); }
  std::int64_t element() const { return static_cast<std::int64_t>(size_of(call.dtype)); }
};

struct Pattern {
  enum class Waits : std::uint8_t { kForAll, kForRoot, kRootForAll };

  const char* summary;
  Waits waits;
  // The number of steps of the call. If Job::ranks_tell(), `longest_block` must be that of all
  // ranks.
  std::int64_t (*steps)(const Job& job);
  // In step `step` of the call, from 0 on. put() may write to the rank's own area of that step,
  // get() reads those of the others, and may write to its own area of the next. Throws
  // Error(kTransport) where a rank's memory is gone.
  void (*put)(const Job& job, std::int64_t step);
  void (*get)(const Job& job, std::int64_t step);
};

namespace patterns {
extern const Pattern kBarrier, kBroadcast, kAllGather, kGather, kScatter, kAllToAll;  // moves.cpp
extern const Pattern kSmallAllReduce, kSmallReduce, kLargeReduction, kReduceScatter, kScan,
    kExscan;  // reductions.cpp
}  // namespace patterns

// What a choice between patterns depends on.
struct Place {
  int ranks;
  std::int64_t area_bytes;  // of a rank, for one step
  bool core_each;           // Segment::has_core_each()
  bool reads = false;       // whether ranks may read each other's memory (Job::processes)
};

// How all_reduce and reduce are carried.
enum class ReductionSteps : std::uint8_t { kOne, kTwo };
using ReductionProtocol = Protocol<Call, Place, ReductionSteps>;
std::span<const ReductionProtocol> reduction_protocols();

// How all_gather, gather, scatter and all_to_all move a block. Each block by itself, so one call
// may do both.
enum class BlockMove : std::uint8_t { kInPlace, kAreas };
using BlockProtocol = Protocol<Call, Place, BlockMove>;
std::span<const BlockProtocol> block_protocols();

// `asked`: one of shm_protocols(), or empty.
const Pattern& pattern_of(const Call& call, const Place& place, std::string_view asked);
// Job::in_place_from.
std::int64_t in_place_from(const Call& call, const Place& place, std::string_view asked);
// For people; its steps are the pattern's.
ExplainedProtocol explain_pattern(const Call& call, const Place& place, std::string_view asked);

// agreement.cpp. What ranks compare. If all ranks must have the same blocks: twice the count (the
// last bit is 0) for blocks of one size, a hash of the counts (the last bit is 1) for uneven ones.
// Else the longest block.
std::uint64_t word_of(const Job& job);
// Writes this rank's counts for its peers, before steps 0 and 1 are published: a segment holds the
// counts of two steps, which later steps reuse.
void put_counts(const Job& job, std::int64_t step);
// After step 0: the error for the first peer whose counts differ from those of this rank.
std::optional<Error> disagreement(const Job& job);

}  // namespace altorch::shm
