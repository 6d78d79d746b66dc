// An operation in 64 bits, so that ranks can compare what they are about to do.
//
// Collectives of one group carry the fingerprint's hash and the sequence number in their message tags: ranks
// that disagree never match each other's messages, so nothing is corrupted, and the stall is explained by
// comparing fingerprints through the store (observe/stall_board.h).
#pragma once

#include <cstdint>
#include <string>

#include "engine/operation.h"

namespace altorch {

// What every rank must agree on. Per-rank counts are left out where ranks may rightly differ (all_to_all,
// gather, scatter), and 0 then.
std::uint64_t fingerprint(const Operation& operation);

// The operation without pointers and spans, which others own; with the same fingerprint.
Operation remembered(const Operation& operation);

// "all_reduce(SUM) of 10 float32"
std::string describe_fingerprint(std::uint64_t fingerprint);

// A tag from `bits` bits: some of the sequence number, some of the fingerprint.
std::int64_t collective_tag(std::uint64_t sequence, std::uint64_t fingerprint, int bits);

}  // namespace altorch
