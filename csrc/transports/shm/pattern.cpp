#include "transports/shm/pattern.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <span>
#include <string>

#include "common/block_counts.h"
#include "common/fnv.h"
#include "reduction/reduce.h"

namespace altorch::shm {
namespace {

// Up to so many bytes every rank reduces all of a vector, in one step; beyond, its slice, in two.
constexpr std::int64_t kOneShot = 16 << 10;

// Elements, from `begin` on.
struct Range {
  std::int64_t begin = 0, count = 0;
};

std::byte* at(void* base, std::int64_t bytes) { return static_cast<std::byte*>(base) + bytes; }
const std::byte* at(const void* base, std::int64_t bytes) {
  return static_cast<const std::byte*>(base) + bytes;
}

void copy_bytes(void* to, const void* from, std::int64_t bytes) {
  if (bytes > 0 && to != from) std::memcpy(to, from, static_cast<std::size_t>(bytes));
}

std::int64_t steps_for(std::int64_t elements, std::int64_t in_one) {
  return std::max<std::int64_t>(1, (elements + in_one - 1) / in_one);
}

// The part of a vector of `count` elements that step `step` moves, when it moves up to `in_one`.
Range part(std::int64_t count, std::int64_t in_one, std::int64_t step) {
  const std::int64_t begin = std::min(count, step * in_one);
  return {begin, std::min(in_one, count - begin)};
}

std::byte* area(const Job& job, int rank, std::int64_t step) {
  return job.segment->area(rank, job.first_step + static_cast<std::uint64_t>(step));
}

// The area in `cuts` equal pieces, each aligned as vectors like it; elements of one.
std::int64_t piece_bytes(const Job& job, int cuts) {
  return static_cast<std::int64_t>(job.segment->area_bytes()) / cuts / 64 * 64;
}
std::int64_t piece_elements(const Job& job, int cuts) { return piece_bytes(job, cuts) / job.element(); }

// out = what the ranks have of it, `from(rank)`, in the order of the ranks.
template <typename From>
void combine_parts(const Job& job, void* out, std::int64_t count, From&& from) {
  if (count <= 0) return;
  std::array<const void*, Segment::kMostRanks> parts;
  const auto size = static_cast<std::size_t>(job.size());
  for (int rank = 0; rank < job.size(); ++rank) parts[static_cast<std::size_t>(rank)] = from(rank);
  combine(job.call.dtype, job.call.op, std::span(parts.data(), size), out, static_cast<std::size_t>(count));
}

// Whether what a rank brings is multiplied by its factor. Then it reads its own part from its area too.
bool scaled(const Job& job) { return job.call.reduces() && job.call.op == ReduceOp::kPremulSum; }

// Into the area.
void put_operand(const Job& job, void* to, const void* from, std::int64_t count) {
  copy_bytes(to, from, count * job.element());
  if (scaled(job) && count > 0) scale(job.call.dtype, to, job.call.factor, static_cast<std::size_t>(count));
}

bool is_root(const Job& job) { return job.rank() == job.call.root; }
const void* reduced(const Job& job) {
  return job.call.kind == OpKind::kAllReduce ? job.call.output : job.call.input;
}

// ---- barrier

std::int64_t one_step(const Job&) { return 1; }
void nothing(const Job&, std::int64_t) {}

// ---- all_reduce and reduce, small: everybody's vector, on its line where it is tiny

std::byte* whole(const Job& job, int rank) {
  const auto bytes = static_cast<std::size_t>(job.call.count * job.element());
  return bytes <= Segment::kInlineBytes ? job.segment->inlined(rank, job.first_step) : area(job, rank, 0);
}
void put_whole(const Job& job, std::int64_t) {
  put_operand(job, whole(job, job.rank()), reduced(job), job.call.count);
}
void get_sum(const Job& job, std::int64_t) {
  if (job.call.kind == OpKind::kReduce && !is_root(job)) return;
  combine_parts(job, job.call.output, job.call.count, [&](int rank) { return whole(job, rank); });
}

// ---- all_reduce and reduce, large. In step s a rank puts chunk s, and finds there what the others made of their
// slices of chunk s - 1, so that a chunk costs one wait. Its own slice it reads where it is, unless it is scaled.

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
  std::byte* const made = result(job, job.rank(), step + 1);
  combine_parts(job, made, own.count, [&](int rank) -> const void* {
    if (rank == job.rank() && !scaled(job)) return at(reduced(job), own.begin * job.element());
    return operand(job, rank, job.rank(), step);
  });
  if (wanted) copy_bytes(at(job.call.output, own.begin * job.element()), made, own.count * job.element());
  if (step == 0 || !wanted) return;
  const Range before = chunk(job, step - 1);
  for (int turn = 1; turn < job.size(); ++turn) {
    const int rank = (job.rank() + turn) % job.size();
    const Range theirs = slice(job, before, rank);
    copy_bytes(at(job.call.output, theirs.begin * job.element()), result(job, rank, step),
               theirs.count * job.element());
  }
}

// ---- broadcast

std::int64_t steps_of_vector(const Job& job) { return steps_for(job.call.count, piece_elements(job, 1)); }
void put_of_root(const Job& job, std::int64_t step) {
  if (!is_root(job)) return;
  const Range now = part(job.call.count, piece_elements(job, 1), step);
  copy_bytes(area(job, job.rank(), step), at(job.call.output, now.begin * job.element()),
             now.count * job.element());
}
void get_of_root(const Job& job, std::int64_t step) {
  if (is_root(job)) return;
  const Range now = part(job.call.count, piece_elements(job, 1), step);
  copy_bytes(at(job.call.output, now.begin * job.element()), area(job, job.call.root, step),
             now.count * job.element());
}

// ---- all_gather and gather: everybody puts a part of its block

std::int64_t output_block(const Job& job, int rank) {
  return block_count(job.call.output_counts, job.call.count, rank);
}
std::int64_t own_block(const Job& job) { return output_block(job, job.rank()); }
std::int64_t steps_of_longest(const Job& job) { return steps_for(job.longest_block, piece_elements(job, 1)); }
void put_own_block(const Job& job, std::int64_t step) {
  const Range now = part(own_block(job), piece_elements(job, 1), step);
  copy_bytes(area(job, job.rank(), step), at(job.call.input, now.begin * job.element()),
             now.count * job.element());
}
void get_blocks(const Job& job, std::int64_t step) {
  if (job.call.kind == OpKind::kGather && !is_root(job)) return;
  std::int64_t offset = 0;
  for (int rank = 0; rank < job.size(); offset += output_block(job, rank), ++rank) {
    const Range now = part(output_block(job, rank), piece_elements(job, 1), step);
    const std::byte* from =
        rank == job.rank() ? at(job.call.input, now.begin * job.element()) : area(job, rank, step);
    copy_bytes(at(job.call.output, (offset + now.begin) * job.element()), from, now.count * job.element());
  }
}

// ---- scatter, all_to_all, reduce_scatter: a part of each block, for whom it is

std::int64_t input_block(const Job& job, int rank) {
  return block_count(job.call.input_counts, job.call.count, rank);
}
std::int64_t steps_of_longest_cut(const Job& job) {
  return steps_for(job.longest_block, piece_elements(job, job.size()));
}
std::byte* cut(const Job& job, int of, int rank, std::int64_t step) {
  return area(job, of, step) + rank * piece_bytes(job, job.size());
}
// The elements of a block that step `step` moves.
Range cut_now(const Job& job, std::int64_t block, std::int64_t step) {
  return part(block, piece_elements(job, job.size()), step);
}
void put_blocks(const Job& job, std::int64_t step) {
  if (job.call.kind == OpKind::kScatter && !is_root(job)) return;
  std::int64_t offset = 0;
  for (int rank = 0; rank < job.size(); offset += input_block(job, rank), ++rank) {
    if (rank == job.rank() && !scaled(job)) continue;
    const Range now = cut_now(job, input_block(job, rank), step);
    put_operand(job, cut(job, job.rank(), rank, step),
                at(job.call.input, (offset + now.begin) * job.element()), now.count);
  }
}
// What rank `of` has for this one, from element `begin` of the block on.
const std::byte* cut_of(const Job& job, int of, std::int64_t begin, std::int64_t step) {
  if (of != job.rank() || scaled(job)) return cut(job, of, job.rank(), step);
  const std::int64_t offset = block_offset(job.call.input_counts, job.call.count, job.rank());
  return at(job.call.input, (offset + begin) * job.element());
}
void get_cut(const Job& job, std::int64_t step) {
  const Range now = cut_now(job, input_block(job, job.rank()), step);
  copy_bytes(at(job.call.output, now.begin * job.element()), cut_of(job, job.call.root, now.begin, step),
             now.count * job.element());
}
void get_cuts(const Job& job, std::int64_t step) {
  std::int64_t offset = 0;
  for (int rank = 0; rank < job.size(); offset += output_block(job, rank), ++rank) {
    const Range now = cut_now(job, output_block(job, rank), step);
    copy_bytes(at(job.call.output, (offset + now.begin) * job.element()), cut_of(job, rank, now.begin, step),
               now.count * job.element());
  }
}
void get_reduced_cuts(const Job& job, std::int64_t step) {
  const Range now = cut_now(job, input_block(job, job.rank()), step);
  combine_parts(job, at(job.call.output, now.begin * job.element()), now.count,
                [&](int rank) { return cut_of(job, rank, now.begin, step); });
}

// ---- what the ranks compare

std::int64_t own_for_anyone(const Job& job, int) { return own_block(job); }
std::int64_t block_for(const Job& job, int peer) { return input_block(job, peer); }
std::int64_t own_of_anyone(const Job& job, int) { return input_block(job, job.rank()); }
std::int64_t block_of(const Job& job, int peer) { return output_block(job, peer); }
std::int64_t root_gathers(const Job& job, int peer) {
  return is_root(job) ? output_block(job, peer) : Pattern::kNone;
}
std::int64_t root_scatters(const Job& job, int peer) {
  return peer == job.call.root ? own_of_anyone(job, peer) : Pattern::kNone;
}

using Waits = Pattern::Waits;
constexpr Pattern kBarrier{.summary = "every rank waits for every other",
                           .waits = Waits::kForAll,
                           .steps = one_step,
                           .put = nothing,
                           .get = nothing};
constexpr Pattern kSmallAllReduce{.summary = "every rank shows its vector, and reduces all",
                                  .waits = Waits::kForAll,
                                  .steps = one_step,
                                  .put = put_whole,
                                  .get = get_sum};
constexpr Pattern kSmallReduce{.summary = "every rank shows its vector, and the root reduces all",
                               .waits = Waits::kRootForAll,
                               .steps = one_step,
                               .put = put_whole,
                               .get = get_sum};
constexpr Pattern kLargeReduction{
    .summary = "chunk by chunk, every rank reduces a slice while it takes the results of the chunk before",
    .waits = Waits::kForAll,
    .steps = chunks_and_one,
    .put = put_chunk,
    .get = get_slice_and_results};
constexpr Pattern kBroadcast{.summary = "the root shows the vector, piece by piece",
                             .waits = Waits::kForRoot,
                             .steps = steps_of_vector,
                             .put = put_of_root,
                             .get = get_of_root};
constexpr Pattern kAllGather{.summary = "every rank shows its block, piece by piece",
                             .waits = Waits::kForAll,
                             .has_for = own_for_anyone,
                             .wants_of = block_of,
                             .steps = steps_of_longest,
                             .put = put_own_block,
                             .get = get_blocks};
constexpr Pattern kGather{.summary = "every rank shows its block, piece by piece",
                          .waits = Waits::kForAll,
                          .ranks_tell = true,
                          .has_for = own_for_anyone,
                          .wants_of = root_gathers,
                          .steps = steps_of_longest,
                          .put = put_own_block,
                          .get = get_blocks};
constexpr Pattern kScatter{.summary = "the root shows all blocks, piece by piece",
                           .waits = Waits::kForAll,
                           .ranks_tell = true,
                           .has_for = block_for,
                           .wants_of = root_scatters,
                           .steps = steps_of_longest_cut,
                           .put = put_blocks,
                           .get = get_cut};
constexpr Pattern kAllToAll{.summary = "every rank shows its blocks, piece by piece",
                            .waits = Waits::kForAll,
                            .ranks_tell = true,
                            .has_for = block_for,
                            .wants_of = block_of,
                            .steps = steps_of_longest_cut,
                            .put = put_blocks,
                            .get = get_cuts};
constexpr Pattern kReduceScatter{
    .summary = "every rank shows its blocks, piece by piece, and reduces its own",
    .waits = Waits::kForAll,
    .has_for = block_for,
    .wants_of = own_of_anyone,
    .steps = steps_of_longest_cut,
    .put = put_blocks,
    .get = get_reduced_cuts};

// Whether all ranks must have the same blocks: their words must be equal.
bool blocks_agree(const Pattern& pattern) { return pattern.has_for && !pattern.ranks_tell; }
bool compares(const Pattern& pattern, const Job& job) {
  return pattern.has_for && (pattern.ranks_tell || job.call.uneven());
}

}  // namespace

const Pattern& pattern_of(const Call& call) {
  const bool small = call.count * static_cast<std::int64_t>(size_of(call.dtype)) <= kOneShot;
  switch (call.kind) {
    case OpKind::kAllReduce:
      return small ? kSmallAllReduce : kLargeReduction;
    case OpKind::kReduce:
      return small ? kSmallReduce : kLargeReduction;
    case OpKind::kBroadcast:
      return kBroadcast;
    case OpKind::kAllGather:
      return kAllGather;
    case OpKind::kGather:
      return kGather;
    case OpKind::kScatter:
      return kScatter;
    case OpKind::kAllToAll:
      return kAllToAll;
    case OpKind::kReduceScatter:
      return kReduceScatter;
    case OpKind::kBarrier:
    case OpKind::kSend:
    case OpKind::kReceive:
      break;
  }
  return kBarrier;
}

void put_counts(const Pattern& pattern, const Job& job) {
  if (!compares(pattern, job)) return;
  std::int64_t* const own = job.segment->counts(job.rank(), job.first_step);
  for (int peer = 0; peer < job.size(); ++peer) own[peer] = pattern.has_for(job, peer);
}

std::uint64_t word_of(const Pattern& pattern, const Job& job) {
  if (!blocks_agree(pattern)) return static_cast<std::uint64_t>(job.longest_block);
  if (!job.call.uneven()) return static_cast<std::uint64_t>(job.call.count) << 1;
  Fnv hash;
  for (const auto& counts : {job.call.input_counts, job.call.output_counts})
    for (const std::int64_t count : counts) hash.add(static_cast<std::uint64_t>(count));
  return hash.value() | 1;
}

std::optional<Error> disagreement(const Pattern& pattern, const Job& job) {
  const auto differs = [](int peer, const std::string& what) {
    return Error(ErrorKind::kMismatch, "rank " + std::to_string(peer) + " of the group has " + what +
                                           ": the ranks disagree about the size of a tensor.");
  };
  const auto word = [&](int peer) { return job.segment->word(peer, job.first_step); };
  const bool uneven = job.call.uneven();
  for (int peer = 0; peer < job.size() && blocks_agree(pattern); ++peer) {
    if ((word(peer) & 1) == (uneven ? 1 : 0)) continue;
    return differs(peer, uneven ? std::to_string(word(peer) >> 1) +
                                      " elements for every rank, and this rank blocks of several sizes"
                                : "blocks of several sizes, and this rank " + std::to_string(job.call.count) +
                                      " elements for every rank");
  }
  for (int peer = 0; peer < job.size() && compares(pattern, job); ++peer) {
    const std::int64_t wanted = pattern.wants_of(job, peer);
    const std::int64_t has = job.segment->counts(peer, job.first_step)[job.rank()];
    if (wanted == Pattern::kNone || has == wanted) continue;
    return differs(peer,
                   std::to_string(has) + " elements for this rank, which expects " + std::to_string(wanted));
  }
  for (int peer = 0; peer < job.size() && blocks_agree(pattern); ++peer) {
    if (word(peer) != job.word) return differs(peer, "other blocks than this rank");
  }
  return std::nullopt;
}

}  // namespace altorch::shm
