// SPDX-License-Identifier: BSD-3-Clause
// How vectors and blocks are moved.
#include <numeric>

#include "transports/shm/pieces.h"

namespace altorch::shm {
namespace {

// So many bytes of blocks in place, read by one rank, in a step.
constexpr std::int64_t kInPlaceStep = 4 << 20;

// ---- barrier

void nothing(const Job&, std::int64_t) {}

// ---- broadcast

// The non-root ranks copy one piece while the root shows the next. With 2 ranks on 2 cores that
// takes 64 KiB from 14.1 to 12.1 us, 256 KiB from 39 to 31, 1 MiB from 119 to 91, 16 MiB from 1.57
// to 1.46 ms. With more ranks than cores a step costs more than that.
std::int64_t piece_of_vector(const Job& job) {
  constexpr std::int64_t kPieces = 8, kLeast = 32 << 10;
  const std::int64_t most = piece_bytes(job, 1), bytes = job.call.count * job.element();
  const std::int64_t piece = job.segment->has_core_each() ? std::max(bytes / kPieces, kLeast) : most;
  return std::min(piece, most) / 64 * 64 / job.element();
}
std::int64_t steps_of_vector(const Job& job) { return steps_for(job.call.count, piece_of_vector(job)); }
// Of two ranks one writes while the other reads, so the root streams. On 2 cores of an AMD EPYC
// that share a cache, us with ordinary stores / streaming / copied once by process_vm_readv:
//   8 KiB    5.5    5.9   -
//   16 KiB   7.3    6.9   -
//   64 KiB   13.1   9.9   12.4
//   256 KiB  37     23    29
//   2 MiB    195    131   190
//   4 MiB    240    255   350     memory is the limit from here on
//   16 MiB   1290   1640  2100
bool is_streamed(const Job& job) {
  constexpr std::int64_t kLeast = 16 << 10, kMost = 2 << 20;
  const std::int64_t bytes = job.call.count * job.element();
  return job.size() == 2 && job.segment->has_core_each() && kLeast <= bytes && bytes <= kMost;
}
void put_of_root(const Job& job, std::int64_t step) {
  if (!is_root(job)) return;
  const Range now = part(job.call.count, piece_of_vector(job), step);
  PeerCopy& copy = is_streamed(job) ? job.segment->eager_copy() : job.segment->peer_copy();
  copy.copy(area(job, job.rank(), step), at(job.call.output, now.begin * job.element()),
            now.count * job.element());
}
void get_of_root(const Job& job, std::int64_t step) {
  if (is_root(job)) return;
  const Range now = part(job.call.count, piece_of_vector(job), step);
  copy_bytes(at(job.call.output, now.begin * job.element()), area(job, job.call.root, step),
             now.count * job.element());
}

// ---- blocks: through the areas, piece by piece, or read where they are

bool is_read_in_place(const Job& job, std::int64_t block) { return block >= job.in_place_from; }
std::int64_t in_place_piece(const Job& job) { return kInPlaceStep / job.size() / job.element(); }

// What step `step` moves of a block; `cuts`: into which an area is cut.
Range now_of(const Job& job, std::int64_t block, int cuts, std::int64_t step) {
  return part(block, is_read_in_place(job, block) ? in_place_piece(job) : piece_elements(job, cuts), step);
}
// The last two steps move nothing. A rank publishes a step when all ranks have *published* the one
// before. So a rank that has published the last step knows that all ranks have published the last
// but one, which they did only after their last read. From then on the owner may abort, and its
// memory may change: no rank still reads it.
std::int64_t steps_of_blocks(const Job& job, int cuts) {
  const std::int64_t through_areas = std::min(job.longest_block, job.in_place_from - 1);
  const std::int64_t steps = steps_for(through_areas, piece_elements(job, cuts));
  if (!is_read_in_place(job, job.longest_block)) return steps;
  return std::max(steps, steps_for(job.longest_block, in_place_piece(job)) + 2);
}

void put_address(const Job& job, const void* base, std::int64_t step) {
  const auto address = reinterpret_cast<std::uint64_t>(base);
  std::memcpy(job.segment->inlined(job.rank(), job.first_step + static_cast<std::uint64_t>(step)), &address,
              sizeof address);
}
// `count` elements, from element `begin` behind the address that rank `of` has put.
void read_in_place(const Job& job, int of, std::uint64_t begin, void* to, std::int64_t count,
                   std::int64_t step) {
  if (count <= 0) return;
  std::uint64_t address = 0;
  std::memcpy(&address, job.segment->inlined(of, job.first_step + static_cast<std::uint64_t>(step)),
              sizeof address);
  address += begin * static_cast<std::uint64_t>(job.element());
  if (!job.processes[static_cast<std::size_t>(of)].read(address, to,
                                                        static_cast<std::size_t>(count * job.element())))
    throw unreadable(job.rank_of_group(of));
}

// ---- all_gather and gather: each rank puts a part of its block

std::int64_t own_block(const Job& job) { return output_block(job, job.rank()); }
std::int64_t steps_of_longest(const Job& job) { return steps_of_blocks(job, 1); }
void put_own_block(const Job& job, std::int64_t step) {
  put_address(job, job.call.input, step);
  if (is_read_in_place(job, own_block(job))) return;
  const Range now = now_of(job, own_block(job), 1, step);
  copy_for_peers(job, area(job, job.rank(), step), at(job.call.input, now.begin * job.element()),
                 now.count * job.element());
}
void get_blocks(const Job& job, std::int64_t step) {
  if (job.call.kind == OpKind::kGather && !is_root(job)) return;
  // Each begins with another rank, so that not all read one's memory at a time.
  for (int turn = 0; turn < job.size(); ++turn) {
    const int rank = (job.rank() + turn) % job.size();
    const std::int64_t block = output_block(job, rank);
    const Range now = now_of(job, block, 1, step);
    const std::int64_t offset = block_offset(job.call.output_counts, job.call.count, rank) + now.begin;
    std::byte* const to = at(job.call.output, offset * job.element());
    if (rank == job.rank()) {
      copy_bytes(to, at(job.call.input, now.begin * job.element()), now.count * job.element());
    } else if (is_read_in_place(job, block)) {
      read_in_place(job, rank, static_cast<std::uint64_t>(now.begin), to, now.count, step);
    } else {
      copy_bytes(to, area(job, rank, step), now.count * job.element());
    }
  }
}

// ---- scatter and all_to_all: a part of each block, for the rank that gets it

std::int64_t steps_of_longest_cut(const Job& job) { return steps_of_blocks(job, job.size()); }
void put_blocks(const Job& job, std::int64_t step) {
  if (job.call.kind == OpKind::kScatter && !is_root(job)) return;
  put_address(job, job.call.input, step);
  std::int64_t offset = 0;
  for (int rank = 0; rank < job.size(); offset += input_block(job, rank), ++rank) {
    if (rank == job.rank() || is_read_in_place(job, input_block(job, rank))) continue;
    const Range now = now_of(job, input_block(job, rank), job.size(), step);
    copy_for_peers(job, cut(job, job.rank(), rank, step),
                   at(job.call.input, (offset + now.begin) * job.element()), now.count * job.element());
  }
}
// Where the block of rank `of` for this rank begins in the input of rank `of`, as that rank has
// told. If it has aborted, the counts of the first step may already be those of a later call.
std::uint64_t offset_there(const Job& job, int of, std::int64_t step) {
  const std::int64_t* const counts =
      job.segment->counts(of, job.first_step + static_cast<std::uint64_t>(step));
  return std::accumulate(counts, counts + job.rank(), std::uint64_t{0});
}
void take_cut(const Job& job, int of, std::int64_t block, void* output, std::int64_t step) {
  const Range now = now_of(job, block, job.size(), step);
  std::byte* const to = at(output, now.begin * job.element());
  if (of == job.rank()) {
    const std::int64_t offset = block_offset(job.call.input_counts, job.call.count, of) + now.begin;
    copy_bytes(to, at(job.call.input, offset * job.element()), now.count * job.element());
  } else if (is_read_in_place(job, block)) {
    read_in_place(job, of, offset_there(job, of, step) + static_cast<std::uint64_t>(now.begin), to, now.count,
                  step);
  } else {
    copy_bytes(to, cut(job, of, job.rank(), step), now.count * job.element());
  }
}
void get_cut(const Job& job, std::int64_t step) {
  take_cut(job, job.call.root, input_block(job, job.rank()), job.call.output, step);
}
void get_cuts(const Job& job, std::int64_t step) {
  for (int turn = 0; turn < job.size(); ++turn) {
    const int rank = (job.rank() + turn) % job.size();
    const std::int64_t offset = block_offset(job.call.output_counts, job.call.count, rank);
    take_cut(job, rank, output_block(job, rank), at(job.call.output, offset * job.element()), step);
  }
}

}  // namespace

extern const Pattern patterns::kBarrier = {.summary = "every rank waits for every other",
                                           .waits = Pattern::Waits::kForAll,
                                           .steps = one_step,
                                           .put = nothing,
                                           .get = nothing};

extern const Pattern patterns::kBroadcast = {.summary = "the root shows the vector, piece by piece",
                                             .waits = Pattern::Waits::kForRoot,
                                             .steps = steps_of_vector,
                                             .put = put_of_root,
                                             .get = get_of_root};

extern const Pattern patterns::kAllGather = {.summary = "every rank shows its block, piece by piece",
                                             .waits = Pattern::Waits::kForAll,
                                             .steps = steps_of_longest,
                                             .put = put_own_block,
                                             .get = get_blocks};

extern const Pattern patterns::kGather = {.summary = "every rank shows its block, piece by piece",
                                          .waits = Pattern::Waits::kForAll,
                                          .steps = steps_of_longest,
                                          .put = put_own_block,
                                          .get = get_blocks};

extern const Pattern patterns::kScatter = {.summary = "the root shows all blocks, piece by piece",
                                           .waits = Pattern::Waits::kForAll,
                                           .steps = steps_of_longest_cut,
                                           .put = put_blocks,
                                           .get = get_cut};

extern const Pattern patterns::kAllToAll = {.summary = "every rank shows its blocks, piece by piece",
                                            .waits = Pattern::Waits::kForAll,
                                            .steps = steps_of_longest_cut,
                                            .put = put_blocks,
                                            .get = get_cuts};

}  // namespace altorch::shm
