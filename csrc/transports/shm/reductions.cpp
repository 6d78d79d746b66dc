// SPDX-License-Identifier: BSD-3-Clause
// How vectors and blocks are reduced.
#include <array>
#include <span>

#include "reduction/reduce.h"
#include "transports/shm/pieces.h"

namespace altorch::shm {
namespace {

// Whether what a rank brings is multiplied by its factor. Then it reads its own part from its area
// too.
bool scaled(const Job& job) { return job.call.reduces() && job.call.op == ReduceOp::kPremulSum; }

// out = what the first `ranks` ranks have of it, in the order of the ranks: `own` of this rank, if
// it is not scaled, and otherwise `part_of(rank)`. Of none: `out` stays.
template <typename PartOf>
void combine_parts(const Job& job, std::size_t ranks, void* out, std::int64_t count, const void* own,
                   PartOf&& part_of) {
  if (count <= 0 || ranks == 0) return;
  std::array<const void*, Segment::kMostRanks> parts;
  for (std::size_t rank = 0; rank < ranks; ++rank) parts[rank] = part_of(static_cast<int>(rank));
  const auto self = static_cast<std::size_t>(job.rank());
  if (self < ranks && !scaled(job)) parts[self] = own;
  if (ranks == 1) return copy_bytes(out, parts[0], count * job.element());
  combine(job.call.dtype, job.call.op, std::span(parts.data(), ranks), out, static_cast<std::size_t>(count));
}
template <typename PartOf>
void combine_parts(const Job& job, void* out, std::int64_t count, const void* own, PartOf&& part_of) {
  combine_parts(job, static_cast<std::size_t>(job.size()), out, count, own, part_of);
}

// Into the area.
void put_operand(const Job& job, void* to, const void* from, std::int64_t count) {
  if (!scaled(job)) return copy_for_peers(job, to, from, count * job.element());
  copy_bytes(to, from, count * job.element());
  if (count > 0) scale(job.call.dtype, to, job.call.factor, static_cast<std::size_t>(count));
}

const void* reduced(const Job& job) {
  return job.call.kind == OpKind::kAllReduce ? job.call.output : job.call.input;
}

// ---- all_reduce and reduce, small: each rank puts its whole vector, on its line if it is tiny

std::byte* whole(const Job& job, int rank) {
  const auto bytes = static_cast<std::size_t>(job.call.count * job.element());
  return bytes <= Segment::kInlineBytes ? job.segment->inlined(rank, job.first_step) : area(job, rank, 0);
}
void put_whole(const Job& job, std::int64_t) {
  put_operand(job, whole(job, job.rank()), reduced(job), job.call.count);
}
void get_sum(const Job& job, std::int64_t) {
  if (job.call.kind == OpKind::kReduce && !is_root(job)) return;
  combine_parts(job, job.call.output, job.call.count, reduced(job),
                [&](int rank) { return whole(job, rank); });
}

// ---- all_reduce and reduce, large. In step s a rank puts chunk s, and finds there what the others
// made of their slices of chunk s - 1, so that a chunk costs one wait. Its own slice it reads where
// it is, unless it is scaled.

std::int64_t slice_elements(const Job& job) { return piece_elements(job, job.size() + 1); }
Range chunk(const Job& job, std::int64_t step) {
  return part(job.call.count, slice_elements(job) * job.size(), step);
}
Range slice(const Job& job, Range of, int rank) {
  const std::int64_t even = (of.count + job.size() - 1) / job.size();
  const std::int64_t each = std::min(slice_elements(job), (even + 15) / 16 * 16);
  const Range within = part(of.count, each, rank);
  return {of.begin + within.begin, within.count};
}
std::byte* operand(const Job& job, int of, int rank, std::int64_t step) {
  return area(job, of, step) + rank * piece_bytes(job, job.size() + 1);
}
std::byte* result(const Job& job, int of, std::int64_t step) { return operand(job, of, job.size(), step); }

std::int64_t chunks_and_one(const Job& job) {
  return steps_for(job.call.count, slice_elements(job) * job.size()) + 1;
}
void put_chunk(const Job& job, std::int64_t step) {
  const Range now = chunk(job, step);
  for (int turn = 1; turn <= job.size(); ++turn) {
    const int rank = (job.rank() + turn) % job.size();
    if (rank == job.rank() && !scaled(job)) continue;
    const Range theirs = slice(job, now, rank);
    put_operand(job, operand(job, job.rank(), rank, step), at(reduced(job), theirs.begin * job.element()),
                theirs.count);
  }
}
void get_slice_and_results(const Job& job, std::int64_t step) {
  const bool wanted = job.call.kind == OpKind::kAllReduce || is_root(job);
  const Range own = slice(job, chunk(job, step), job.rank());
  std::byte* const to_show = result(job, job.rank(), step + 1);
  std::byte* const made = wanted ? at(job.call.output, own.begin * job.element()) : to_show;
  combine_parts(job, made, own.count, at(reduced(job), own.begin * job.element()),
                [&](int rank) { return operand(job, rank, job.rank(), step); });
  if (wanted) copy_for_peers(job, to_show, made, own.count * job.element());
  if (step == 0 || !wanted) return;
  const Range before = chunk(job, step - 1);
  for (int turn = 1; turn < job.size(); ++turn) {
    const int rank = (job.rank() + turn) % job.size();
    const Range theirs = slice(job, before, rank);
    copy_bytes(at(job.call.output, theirs.begin * job.element()), result(job, rank, step),
               theirs.count * job.element());
  }
}

// ---- reduce_scatter: a part of each block, for the rank that gets it

Range cut_now(const Job& job, std::int64_t block, std::int64_t step) {
  return part(block, piece_elements(job, job.size()), step);
}
std::int64_t steps_of_reduce_scatter(const Job& job) {
  return steps_for(job.longest_block, piece_elements(job, job.size()));
}
void put_operands(const Job& job, std::int64_t step) {
  std::int64_t offset = 0;
  for (int rank = 0; rank < job.size(); offset += input_block(job, rank), ++rank) {
    if (rank == job.rank() && !scaled(job)) continue;
    const Range now = cut_now(job, input_block(job, rank), step);
    put_operand(job, cut(job, job.rank(), rank, step),
                at(job.call.input, (offset + now.begin) * job.element()), now.count);
  }
}
void get_reduced_cuts(const Job& job, std::int64_t step) {
  const Range now = cut_now(job, input_block(job, job.rank()), step);
  const std::int64_t offset = block_offset(job.call.input_counts, job.call.count, job.rank()) + now.begin;
  combine_parts(job, at(job.call.output, now.begin * job.element()), now.count,
                at(job.call.input, offset * job.element()),
                [&](int rank) { return cut(job, rank, job.rank(), step); });
}

// ---- scan and exscan: each rank puts its vector, and reduces those of the ranks up to it, or
// below it

Range scanned(const Job& job, std::int64_t step) {
  return part(job.call.count, piece_elements(job, 1), step);
}
std::int64_t steps_of_scan(const Job& job) { return steps_for(job.call.count, piece_elements(job, 1)); }
void put_scanned(const Job& job, std::int64_t step) {
  const Range now = scanned(job, step);
  put_operand(job, area(job, job.rank(), step), at(job.call.output, now.begin * job.element()), now.count);
}
void get_scanned(const Job& job, std::int64_t step) {
  const Range now = scanned(job, step);
  const int parts = job.rank() + (job.call.kind == OpKind::kScan ? 1 : 0);
  std::byte* const own = at(job.call.output, now.begin * job.element());
  combine_parts(job, static_cast<std::size_t>(parts), own, now.count, own,
                [&](int rank) { return area(job, rank, step); });
}

}  // namespace

extern const Pattern patterns::kSmallAllReduce = {.summary = "every rank shows its vector, and reduces all",
                                                  .waits = Pattern::Waits::kForAll,
                                                  .steps = one_step,
                                                  .put = put_whole,
                                                  .get = get_sum};

extern const Pattern patterns::kSmallReduce = {
    .summary = "every rank shows its vector, and the root reduces all",
    .waits = Pattern::Waits::kRootForAll,
    .steps = one_step,
    .put = put_whole,
    .get = get_sum};

extern const Pattern patterns::kLargeReduction = {
    .summary = "chunk by chunk, every rank reduces a slice while it takes the results of the chunk before",
    .waits = Pattern::Waits::kForAll,
    .steps = chunks_and_one,
    .put = put_chunk,
    .get = get_slice_and_results};

extern const Pattern patterns::kReduceScatter = {
    .summary = "every rank shows its blocks, piece by piece, and reduces its own",
    .waits = Pattern::Waits::kForAll,
    .steps = steps_of_reduce_scatter,
    .put = put_operands,
    .get = get_reduced_cuts};

extern const Pattern patterns::kScan = {
    .summary = "piece by piece, every rank shows its vector, and reduces those of the ranks up to it",
    .waits = Pattern::Waits::kForAll,
    .steps = steps_of_scan,
    .put = put_scanned,
    .get = get_scanned};

extern const Pattern patterns::kExscan = {
    .summary = "piece by piece, every rank shows its vector, and reduces those of the ranks below it",
    .waits = Pattern::Waits::kForAll,
    .steps = steps_of_scan,
    .put = put_scanned,
    .get = get_scanned};

}  // namespace altorch::shm
