// SPDX-License-Identifier: BSD-3-Clause
// A Schedule is an algorithm as data: for one rank, the rounds of messages and local work that
// carry out a collective. Building one is a pure function of a Problem, so an algorithm is proved
// on virtual ranks, priced for thousands of ranks and printed without moving a byte; executor.h
// runs it on any Channel.
//
// All offsets and counts are in elements, not bytes.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/block_counts.h"

namespace altorch {

enum class Region : std::uint8_t { kInput, kOutput, kScratch };

// `count` elements of a region, from `offset` on. A count of 0 is legal everywhere: an empty
// message is sent.
struct Slice {
  Region region = Region::kOutput;
  std::int64_t offset = 0;
  std::int64_t count = 0;
};

enum class StepKind : std::uint8_t {
  kSend,     // a -> peer
  kReceive,  // peer -> a
  kCopy,     // a -> c; overlap is allowed only when a and c are the same memory (then nothing is done)
  kReduce,   // c = a (op) b; c may be a or b itself. By convention `a` holds the lower ranks' part, so that
             // every rank computes the same bits whatever the operands (NaN payloads included)
  kCombine,  // c = part 0 (op) part 1 (op) ... in one step, so that half types are rounded once and kAvg is
             // the mean. Part `peer` is b, the others lie side by side in a, each of c.count
             // elements; c may be b itself
};

struct Step {
  StepKind kind;
  int peer = -1;  // rank in the group (messages), place of b (combinations)
  Slice a, b, c;
};

// The parts of a combination, from left to right.
inline int parts_of(const Step& step) { return static_cast<int>(step.a.count / step.c.count) + 1; }
inline Slice part_of(const Step& step, int i) {
  if (i == step.peer) return step.b;
  return {step.a.region, step.a.offset + (i < step.peer ? i : i - 1) * step.c.count, step.c.count};
}

// One round: post every message, do the local steps in order while the messages fly, then wait for
// the messages. So local steps work on what earlier rounds brought; they may read what this round
// sends, and touch nothing that this round receives. Messages between one pair of ranks match in
// the order in which they stand.
struct Round {
  std::uint32_t messages_begin = 0, messages_end = 0;  // indices into Schedule::steps
  std::uint32_t locals_begin = 0, locals_end = 0;      // locals_begin == messages_end
};

struct Schedule {
  std::vector<Step> steps;
  std::vector<Round> rounds;
  std::int64_t scratch_count = 0;  // elements of the scratch region
};

// What an algorithm has to do. Regions, by operation (p = size):
//   all_reduce      Output holds `count` elements, reduced in place; Input is not used.
//   reduce          Input holds `count`; the root's Output receives `count` (on the root, Output may be Input
//                   itself). The Output of other ranks is not touched. No rank's Input is changed, unless it
//                   is also its Output.
//   broadcast       Output holds `count`, valid on the root before, everywhere after.
//   all_gather      Input holds output_counts[rank]; Output holds all blocks in rank order. Input may be the
//                   rank's own block of Output (the copy then moves nothing).
//   reduce_scatter  Input holds all blocks (input_counts), Output holds input_counts[rank]. Input is not
//                   changed, unless Output is the rank's own block of Input.
//   all_to_all      Input holds input_counts[i] for rank i, Output output_counts[i] from rank i; never the
//                   same memory.
//   gather          Input holds the rank's own block; the root's Output all blocks (output_counts, on every
//                   rank: empty on ranks other than the root when only the root knows them, then `count` is
//                   the own block).
//   scatter         the root's Input holds all blocks (input_counts, same rule), Output the rank's own block.
//   scan, exscan    Output holds `count` elements, reduced in place; Input is not used. The Output of rank 0 does not change.
//   barrier         no data; messages carry 0 elements.
// For an even collective input_counts / output_counts are all equal to `count` (the count of one
// block) and the spans may be left empty: use block_count(), block_offset().
struct Problem {
  int rank = 0;
  int size = 1;
  int root = 0;
  std::int64_t count = 0;                            // elements of the vector, or of one block
  std::span<const std::int64_t> input_counts = {};   // one per rank, or empty
  std::span<const std::int64_t> output_counts = {};  // one per rank, or empty
  std::int64_t segment_count = 0;  // pipelined algorithms: elements of one segment; 0 = do not segment
};

}  // namespace altorch
