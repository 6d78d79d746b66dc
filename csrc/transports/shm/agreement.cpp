// SPDX-License-Identifier: BSD-3-Clause
// How the ranks of a call find out that they disagree about its blocks.
#include <string>

#include "base/fnv.h"
#include "transports/shm/pattern.h"

namespace altorch::shm {
namespace {

// Whether all ranks must have the same blocks: their words must be equal.
bool blocks_agree(const Job& job) { return has_blocks(job.call.kind) && !job.ranks_tell(); }
bool compares(const Job& job) { return has_blocks(job.call.kind) && (job.ranks_tell() || job.call.uneven()); }

}  // namespace

void put_counts(const Job& job, std::int64_t step) {
  if (!compares(job)) return;
  std::int64_t* const own =
      job.segment->counts(job.rank(), job.first_step + static_cast<std::uint64_t>(step));
  for (int peer = 0; peer < job.size(); ++peer) own[peer] = count_for(job.call, job.rank(), peer).value_or(0);
}

std::uint64_t word_of(const Job& job) {
  if (!blocks_agree(job)) return static_cast<std::uint64_t>(job.longest_block);
  if (!job.call.uneven()) return static_cast<std::uint64_t>(job.call.count) << 1;
  Fnv hash;
  for (const auto& counts : {job.call.input_counts, job.call.output_counts})
    for (const std::int64_t count : counts) hash.add(static_cast<std::uint64_t>(count));
  return hash.value() | 1;
}

std::optional<Error> disagreement(const Job& job) {
  const auto differs = [&](int peer, const std::string& what) {
    return Error(ErrorKind::kMismatch, "rank " + std::to_string(job.rank_of_group(peer)) +
                                           " of the group has " + what +
                                           ": the ranks disagree about the size of a tensor.");
  };
  const auto word = [&](int peer) { return job.segment->word(peer, job.first_step); };
  const bool uneven = job.call.uneven();
  for (int peer = 0; peer < job.size() && blocks_agree(job); ++peer) {
    if ((word(peer) & 1) == (uneven ? 1 : 0)) continue;
    return differs(peer, uneven ? std::to_string(word(peer) >> 1) +
                                      " elements for every rank, and this rank blocks of several sizes"
                                : "blocks of several sizes, and this rank " + std::to_string(job.call.count) +
                                      " elements for every rank");
  }
  for (int peer = 0; peer < job.size() && compares(job); ++peer) {
    const auto wanted = count_from(job.call, job.rank(), peer);
    const std::int64_t has = job.segment->counts(peer, job.first_step)[job.rank()];
    if (!wanted || has == *wanted) continue;
    return differs(peer,
                   std::to_string(has) + " elements for this rank, which expects " + std::to_string(*wanted));
  }
  for (int peer = 0; peer < job.size() && blocks_agree(job); ++peer) {
    if (word(peer) != job.word) return differs(peer, "other blocks than this rank");
  }
  return std::nullopt;
}

}  // namespace altorch::shm
