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

// `own`: the counts of the buffer with all blocks on the other side.
std::int64_t part_count(const Call& call, Holds holds, std::span<const std::int64_t> all,
                        std::span<const std::int64_t> own, int rank, int peer) {
  if (holds == Holds::kAllBlocks) return block_count(all, call.count, peer);
  if (holds == Holds::kOwnBlock) return block_count(own, call.count, rank);
  return call.count;
}

std::optional<std::int64_t> whole(const Call& call, Holds holds, bool is_here,
                                  std::span<const std::int64_t> all, std::span<const std::int64_t> own,
                                  int rank, int size) {
  if (holds == Holds::kNothing) return std::nullopt;
  if (holds != Holds::kAllBlocks) return part_count(call, holds, all, own, rank, rank);
  return is_here ? std::optional(block_offset(all, call.count, size)) : std::nullopt;
}

}  // namespace

std::span<const std::int64_t> block_counts(const Call& call) {
  return traits_of(call).input == Holds::kAllBlocks ? call.input_counts : call.output_counts;
}

std::int64_t longest_block(const Call& call) {
  std::int64_t longest = call.uneven() ? 0 : call.count;
  for (const auto& counts : {call.input_counts, call.output_counts})
    if (!counts.empty()) longest = std::max(longest, *std::max_element(counts.begin(), counts.end()));
  return longest;
}

Elements elements_of(const Call& call, int rank, int size) {
  const OpKindTraits& traits = traits_of(call);
  return {
      whole(call, traits.input, has_input(call, rank), call.input_counts, call.output_counts, rank, size),
      whole(call, traits.output, has_output(call, rank), call.output_counts, call.input_counts, rank, size)};
}

std::optional<std::int64_t> count_for(const Call& call, int rank, int peer) {
  const Holds holds = traits_of(call).input;
  if (!goes_to(call, rank, peer)) return std::nullopt;
  return part_count(call, holds, call.input_counts, call.output_counts, rank, peer);
}

std::optional<std::int64_t> count_from(const Call& call, int rank, int peer) {
  const Holds holds = traits_of(call).output;
  if (!goes_to(call, peer, rank)) return std::nullopt;
  return part_count(call, holds, call.output_counts, call.input_counts, rank, peer);
}

std::optional<Range> part_for(const Call& call, int rank, int peer) {
  const auto count = count_for(call, rank, peer);
  if (!count) return std::nullopt;
  const bool blocks = traits_of(call).input == Holds::kAllBlocks;
  return Range{blocks ? block_offset(call.input_counts, call.count, peer) : 0, *count};
}

std::optional<Range> part_from(const Call& call, int rank, int peer) {
  const auto count = count_from(call, rank, peer);
  if (!count) return std::nullopt;
  const bool blocks = traits_of(call).output == Holds::kAllBlocks;
  return Range{blocks ? block_offset(call.output_counts, call.count, peer) : 0, *count};
}

std::int64_t result_count(const Call& call, int rank, int size) {
  const OpKindTraits& traits = traits_of(call);
  if (!has_output(call, rank)) return 0;
  // The root of a broadcast has the vector already, where the others get it.
  if (traits.input == Holds::kVector && traits.input_at_root && rank == call.root) return 0;
  return elements_of(call, rank, size).output.value_or(0);
}

}  // namespace altorch
