// SPDX-License-Identifier: BSD-3-Clause
// How each collective is cut into steps over a Segment: what a rank puts into its area in a step,
// and what it gets from the areas of the others.
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

// One call on its way.
struct Job {
  Call call;
  Segment* segment = nullptr;
  std::uint64_t first_step = 0;  // in the life of the group
  std::int64_t steps = 0;        // of this call
  // Of the largest block that this rank knows of; where the ranks tell theirs, after the first step
  // that of any rank.
  std::int64_t longest_block = 0;
  std::uint64_t word = 0;  // what the others are told with every step: word_of()
  // By rank, where they may read each other's memory; otherwise empty.
  std::span<const Process> processes = {};
  // Blocks of so many elements are read where they are; smaller ones go through the areas.
  std::int64_t in_place_from = std::numeric_limits<std::int64_t>::max();
  // By rank; empty: the same.
  std::span<const int> ranks_of_group = {};

  int rank() const { return segment->rank(); }
  int size() const { return segment->size(); }
  // For people.
  int rank_of_group(int rank) const {
    return ranks_of_group.empty() ? rank : ranks_of_group[static_cast<std::size_t>(rank)];
  }
  // Whether ranks may know different blocks: they tell what they have in the first step, and the
  // steps follow from the longest.
  bool ranks_tell() const { return !all_know_sizes(call.kind); }
  std::int64_t element() const { return static_cast<std::int64_t>(size_of(call.dtype)); }
};

struct Pattern {
  enum class Waits : std::uint8_t { kForAll, kForRoot, kRootForAll };

  const char* summary;
  Waits waits;
  // How many steps a call takes; given `longest_block` of all ranks where they tell it
  // (Job::ranks_tell).
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

// How all_gather, gather, scatter and all_to_all move a block: each for itself, so that one call
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

// agreement.cpp. The largest block, or, where the blocks must agree, a hash of them that is odd; of
// even ones twice the count.
std::uint64_t word_of(const Job& job);
// Before step `step` of the call is published, 0 and 1: those of later steps lie in the same two
// places.
void put_counts(const Job& job, std::int64_t step);
// When it is there: the first rank that has other counts than this one wants.
std::optional<Error> disagreement(const Job& job);

}  // namespace altorch::shm
