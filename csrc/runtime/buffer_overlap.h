// SPDX-License-Identifier: BSD-3-Clause
// Detects overlap of the input and the output of a collective. Thread rules: pure functions.
#pragma once

#include <cstddef>

#include "base/call.h"

namespace altorch {

// Bytes of the input that `rank` of `size` reads in a collective of one block per rank.
std::size_t input_bytes(const Call& call, int rank, int size);

// overwrites_its_input() of a kind with blocks.
bool blocks_overwrite_their_input(const Call& call, int rank, int size);

// Whether writing the output would overwrite input that this rank still has to read. Allowed is
// what algorithms expect (collectives/schedule.h): the smaller buffer is this rank's own block of
// the larger one. all_to_all allows no overlap.
inline bool overwrites_its_input(const Call& call, int rank, int size) {
  return has_blocks(call.kind) && blocks_overwrite_their_input(call, rank, size);
}

}  // namespace altorch
