// SPDX-License-Identifier: BSD-3-Clause
#include "base/elements.h"

#include <span>

#include "base/block_counts.h"

namespace altorch {

Elements elements_of(const Call& call, int rank, int size) {
  const auto own = [&](std::span<const std::int64_t> counts) {
    return block_count(counts, call.count, rank);
  };
  const auto all = [&](std::span<const std::int64_t> counts) {
    return block_offset(counts, call.count, size);
  };
  const auto at_root = [&](std::span<const std::int64_t> counts) {
    return rank == call.root ? std::optional(all(counts)) : std::nullopt;
  };
  switch (call.kind) {
    case OpKind::kAllReduce:
    case OpKind::kReduce:
    case OpKind::kBroadcast:
      return {call.count, call.count};
    case OpKind::kAllGather:
      return {own(call.output_counts), all(call.output_counts)};
    case OpKind::kReduceScatter:
      return {all(call.input_counts), own(call.input_counts)};
    case OpKind::kAllToAll:
      return {all(call.input_counts), all(call.output_counts)};
    case OpKind::kGather:
      return {own(call.output_counts), at_root(call.output_counts)};
    case OpKind::kScatter:
      return {at_root(call.input_counts), own(call.input_counts)};
    case OpKind::kSend:
      return {call.count, std::nullopt};
    case OpKind::kReceive:
      return {std::nullopt, call.count};
    case OpKind::kBarrier:
    case OpKind::kOneSided:
      break;
  }
  return {};
}

}  // namespace altorch
