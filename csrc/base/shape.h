// SPDX-License-Identifier: BSD-3-Clause
// The shape of a collective: which part of which buffer goes from which rank to which. The code
// that carries a call, compares it with that of a peer, records it or marks its result asks here;
// the rows of op_kind.h say all in which kinds differ.
//
// Pure functions of a call. Counts are elements, and so are places in a buffer. A rank knows the
// sizes of its own buffers only: where the ranks' counts may differ (all_know_sizes), do not ask
// for another rank's parts.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "base/call.h"

namespace altorch {

struct Range {
  std::int64_t begin = 0, count = 0;
};

// Whether each rank has a block for every rank, and gets one of each.
constexpr bool exchanges(OpKind kind) {
  return kOpKinds[kind].input == Holds::kAllBlocks && kOpKinds[kind].output == Holds::kAllBlocks;
}
// Whether each rank gets the block that is its own: reduce_scatter and scatter.
constexpr bool scatters(OpKind kind) { return kOpKinds[kind].output == Holds::kOwnBlock; }
// Whether every rank knows the size of every block, or vector. If not, the two ends of a block know
// it.
constexpr bool all_know_sizes(OpKind kind) {
  return is_collective(kind) && !exchanges(kind) && !(has_blocks(kind) && is_rooted(kind));
}
// Whether it moves data, and every rank knows all sizes: vectors, and blocks with counts that all
// have. Not MPI's vector forms.
constexpr bool is_vector_collective(OpKind kind) {
  return all_know_sizes(kind) && kOpKinds[kind].output != Holds::kNothing;
}

// The count of each rank's block; empty if all have `count` elements. all_to_all has two such
// lists: do not ask.
std::span<const std::int64_t> block_counts(const Call& call);
// The elements of a rank's vector, or of all its even blocks, as every rank knows them. Of uneven
// blocks, of scans, and where ranks do not know each other's sizes, 0.
std::int64_t even_elements(const Call& call, int size);
// Elements of the longest block that this rank knows of, or of the vector.
std::int64_t longest_block(const Call& call);

// Whether `rank` brings data, and whether it gets some.
inline bool has_input(const Call& call, int rank) {
  return kOpKinds[call.kind].input != Holds::kNothing &&
         (!kOpKinds[call.kind].input_at_root || rank == call.root);
}
inline bool has_output(const Call& call, int rank) {
  const OpKindTraits& traits = kOpKinds[call.kind];
  if (traits.contributors == Contributors::kBelowSelf && rank == 0) return false;
  return traits.output != Holds::kNothing && (!traits.output_at_root || rank == call.root);
}

// Elements of the tensors of one rank, whole; nothing where it has no such tensor. Every rank has
// one tensor of a broadcast or reduce, which counts as both.
struct Elements {
  std::optional<std::int64_t> input, output;
};
Elements elements_of(const Call& call, int rank, int size);

// The part of its input that `rank` sends to `peer`, which may be itself. Nothing is returned where
// none goes there; a part of no elements has count 0. Of collectives only.
std::optional<Range> part_for(const Call& call, int rank, int peer);
// The part of its output where `rank` puts what `peer` sends. A reduction puts there what it makes
// of the parts of all contributors.
std::optional<Range> part_from(const Call& call, int rank, int peer);
// Their counts alone. These take the same time for every peer; parts of uneven blocks take longer
// for later peers.
std::optional<std::int64_t> count_for(const Call& call, int rank, int peer);
std::optional<std::int64_t> count_from(const Call& call, int rank, int peer);

// How many elements of its output a call overwrites on `rank`, from the beginning on. 0 where the
// rank gets nothing, and at the root of a broadcast, which has the vector already.
std::int64_t result_count(const Call& call, int rank, int size);

}  // namespace altorch
