// SPDX-License-Identifier: BSD-3-Clause
// What patterns are made of: parts of vectors and blocks, and where they lie in the areas.
#pragma once

#include <algorithm>
#include <cstring>

#include "base/block_counts.h"
#include "base/shape.h"
#include "transports/shm/pattern.h"

namespace altorch::shm {

inline std::byte* at(void* base, std::int64_t bytes) { return static_cast<std::byte*>(base) + bytes; }
inline const std::byte* at(const void* base, std::int64_t bytes) {
  return static_cast<const std::byte*>(base) + bytes;
}

inline void copy_bytes(void* to, const void* from, std::int64_t bytes) {
  if (bytes > 0 && to != from) std::memcpy(to, from, static_cast<std::size_t>(bytes));
}

// Copies into an area of this rank.
inline void copy_for_peers(const Job& job, void* to, const void* from, std::int64_t bytes) {
  job.segment->peer_copy().copy(to, from, bytes);
}

inline std::int64_t steps_for(std::int64_t elements, std::int64_t in_one) {
  return std::max<std::int64_t>(1, (elements + in_one - 1) / in_one);
}

inline std::int64_t one_step(const Job&) { return 1; }

// The part of a vector of `count` elements that step `step` moves, when it moves up to `in_one`.
inline Range part(std::int64_t count, std::int64_t in_one, std::int64_t step) {
  const std::int64_t begin = std::min(count, step * in_one);
  return {begin, std::min(in_one, count - begin)};
}

inline std::byte* area(const Job& job, int rank, std::int64_t step) {
  return job.segment->area(rank, job.first_step + static_cast<std::uint64_t>(step));
}

// The area in `cuts` equal pieces, each aligned as vectors like it; elements of one.
inline std::int64_t piece_bytes(const Job& job, int cuts) {
  return static_cast<std::int64_t>(job.segment->area_bytes()) / cuts / 64 * 64;
}
inline std::int64_t piece_elements(const Job& job, int cuts) {
  return piece_bytes(job, cuts) / job.element();
}

inline bool is_root(const Job& job) { return job.rank() == job.call.root; }

// Elements of the block of `rank`.
inline std::int64_t output_block(const Job& job, int rank) {
  return block_count(job.call.output_counts, job.call.count, rank);
}
inline std::int64_t input_block(const Job& job, int rank) {
  return block_count(job.call.input_counts, job.call.count, rank);
}

// The piece of the area of rank `of` that rank `rank` gets, if an area is cut into one piece for
// each rank.
inline std::byte* cut(const Job& job, int of, int rank, std::int64_t step) {
  return area(job, of, step) + rank * piece_bytes(job, job.size());
}

}  // namespace altorch::shm
