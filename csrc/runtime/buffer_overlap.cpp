// SPDX-License-Identifier: BSD-3-Clause
#include "runtime/buffer_overlap.h"

#include <cstdint>

#include "base/block_counts.h"

namespace altorch {
namespace {

struct Span {
  std::uintptr_t begin = 0, bytes = 0;

  bool meets(const Span& other) const {
    return bytes > 0 && other.bytes > 0 && begin < other.begin + other.bytes && other.begin < begin + bytes;
  }
};

Span span_of(const Call& call, const void* memory, std::int64_t offset, std::int64_t count) {
  const std::uintptr_t element = size_of(call.dtype);
  return {reinterpret_cast<std::uintptr_t>(memory) + static_cast<std::uintptr_t>(offset) * element,
          static_cast<std::uintptr_t>(count) * element};
}

Span all_blocks(const Call& call, const void* memory, std::span<const std::int64_t> counts, int size) {
  return span_of(call, memory, 0, block_offset(counts, call.count, size));
}

Span block_within(const Call& call, const void* memory, std::span<const std::int64_t> counts, int rank) {
  return span_of(call, memory, block_offset(counts, call.count, rank), block_count(counts, call.count, rank));
}

// `part`: one block, which may be the own one of `whole`.
bool lies_elsewhere(const Span& part, const Span& whole, const Span& own) {
  return part.meets(whole) && part.begin != own.begin;
}

}  // namespace

std::size_t input_bytes(const Call& call, int rank, int size) {
  if (call.kind != OpKind::kAllGather && call.kind != OpKind::kGather)
    return all_blocks(call, call.input, call.input_counts, size).bytes;
  return block_within(call, call.input, call.output_counts, rank).bytes;
}

bool overwrites_its_input(const Call& call, int rank, int size) {
  if (!kOpKinds[call.kind].blocks) return false;
  if (is_rooted(call.kind) && call.root != rank) return false;  // has one buffer only
  if (call.kind == OpKind::kAllToAll)
    return all_blocks(call, call.input, call.input_counts, size)
        .meets(all_blocks(call, call.output, call.output_counts, size));
  if (call.kind == OpKind::kAllGather || call.kind == OpKind::kGather) {
    const Span own = block_within(call, call.output, call.output_counts, rank);
    return lies_elsewhere(span_of(call, call.input, 0, block_count(call.output_counts, call.count, rank)),
                          all_blocks(call, call.output, call.output_counts, size), own);
  }
  const Span own = block_within(call, call.input, call.input_counts, rank);
  return lies_elsewhere(span_of(call, call.output, 0, block_count(call.input_counts, call.count, rank)),
                        all_blocks(call, call.input, call.input_counts, size), own);
}

}  // namespace altorch
