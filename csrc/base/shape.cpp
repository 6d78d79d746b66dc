// SPDX-License-Identifier: BSD-3-Clause
#include "base/shape.h"

#include <algorithm>

#include "base/block_counts.h"

namespace altorch {
namespace {

const OpKindTraits& traits_of(const Call& call) { return kOpKinds[call.kind]; }

// Whether what `from` has is for `to`.
bool goes_to(const Call& call, int from, int to) {
  switch (traits_of(call).contributors) {
    case Contributors::kAll:
      break;
    case Contributors::kUpToSelf:
      return from <= to;
    case Contributors::kBelowSelf:
      return from < to;
  }
  return has_input(call, from) && has_output(call, to);
}

// One of the two buffers of a call.
struct Buffer {
  Holds holds;
  std::span<const std::int64_t> counts, other_counts;  // of this buffer's blocks, and of the other's
};
Buffer input_of(const Call& call) { return {traits_of(call).input, call.input_counts, call.output_counts}; }
Buffer output_of(const Call& call) { return {traits_of(call).output, call.output_counts, call.input_counts}; }

std::int64_t count_in(const Buffer& buffer, const Call& call, int rank, int peer) {
  if (buffer.holds == Holds::kAllBlocks) return block_count(buffer.counts, call.count, peer);
  if (buffer.holds == Holds::kOwnBlock) return block_count(buffer.other_counts, call.count, rank);
  return call.count;
}

std::optional<Range> part_in(const Buffer& buffer, const Call& call, std::optional<std::int64_t> count,
                             int peer) {
  if (!count) return std::nullopt;
  const bool blocks = buffer.holds == Holds::kAllBlocks;
  return Range{blocks ? block_offset(buffer.counts, call.count, peer) : 0, *count};
}

std::optional<std::int64_t> whole(const Buffer& buffer, const Call& call, bool is_here, int rank, int size) {
  if (buffer.holds == Holds::kNothing) return std::nullopt;
  if (buffer.holds != Holds::kAllBlocks) return count_in(buffer, call, rank, rank);
  return is_here ? std::optional(block_offset(buffer.counts, call.count, size)) : std::nullopt;
}

}  // namespace

std::span<const std::int64_t> block_counts(const Call& call) {
  return traits_of(call).input == Holds::kAllBlocks ? call.input_counts : call.output_counts;
}

std::int64_t even_elements(const Call& call, int size) {
  if (!is_vector_collective(call.kind) || is_scan(call.kind) || call.uneven()) return 0;
  return (scatters(call.kind) ? size : 1) * call.count;
}

std::int64_t longest_block(const Call& call) {
  std::int64_t longest = call.uneven() ? 0 : call.count;
  for (const auto& counts : {call.input_counts, call.output_counts})
    if (!counts.empty()) longest = std::max(longest, *std::max_element(counts.begin(), counts.end()));
  return longest;
}

Elements elements_of(const Call& call, int rank, int size) {
  return {whole(input_of(call), call, has_input(call, rank), rank, size),
          whole(output_of(call), call, has_output(call, rank), rank, size)};
}

std::optional<std::int64_t> count_for(const Call& call, int rank, int peer) {
  return goes_to(call, rank, peer) ? std::optional(count_in(input_of(call), call, rank, peer)) : std::nullopt;
}

std::optional<std::int64_t> count_from(const Call& call, int rank, int peer) {
  return goes_to(call, peer, rank) ? std::optional(count_in(output_of(call), call, rank, peer))
                                   : std::nullopt;
}

std::optional<Range> part_for(const Call& call, int rank, int peer) {
  return part_in(input_of(call), call, count_for(call, rank, peer), peer);
}

std::optional<Range> part_from(const Call& call, int rank, int peer) {
  return part_in(output_of(call), call, count_from(call, rank, peer), peer);
}

std::int64_t result_count(const Call& call, int rank, int size) {
  const OpKindTraits& traits = traits_of(call);
  if (!has_output(call, rank)) return 0;
  // The root of a broadcast has the vector already, where the others get it.
  if (traits.input == Holds::kVector && traits.input_at_root && rank == call.root) return 0;
  return elements_of(call, rank, size).output.value_or(0);
}

}  // namespace altorch
