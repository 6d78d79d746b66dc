// SPDX-License-Identifier: BSD-3-Clause
// An operation in 64 bits, so that ranks can compare what they are about to do.
//
// Collectives of one group carry a hash of the fingerprint, and of all calls before, in their
// message tags: ranks that disagree about this call or about an earlier one never match each
// other's messages, so nothing is corrupted, and the stall is explained by comparing notes through
// the store (health/desync_board.h).
#pragma once

#include <cstdint>
#include <string>

#include "base/operation.h"
#include "health/desync_board.h"

namespace altorch {

// What every rank must agree on. Per-rank counts are left out where ranks may rightly differ
// (all_to_all, gather, scatter), and 0 then. `even`: the ranks must agree on the count of a block
// all the same.
std::uint64_t fingerprint(const Operation& operation, bool even = false);

// What a rank tells others of its call.
inline CallNote note_of(const Operation& operation) {
  return {operation.sequence, fingerprint(operation), operation.history, operation.on_gpu()};
}

// The operation without pointers and spans, which others own; with the same fingerprint.
Operation remembered(const Operation& operation);

// "all_reduce(SUM) of 10 float32"
std::string describe_fingerprint(std::uint64_t fingerprint);

// What a group has called, with one call more. A call that a rank refuses counts as
// CallNote::kRefused.
std::uint64_t append_call(std::uint64_t history, std::uint64_t fingerprint);

// A tag from `bits` bits: a few of the sequence number, the others of the call and of the group's
// history before it. Throws Error(kUnsupported) where there are too few to tell calls apart.
std::int64_t collective_tag(const Operation& operation, std::uint64_t fingerprint, int bits);

}  // namespace altorch
