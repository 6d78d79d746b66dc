// Calls whose output lies where their input does.
#pragma once

#include <cstddef>

#include "common/call.h"

namespace altorch {

// Bytes of the input that `rank` of `size` reads in a call of blocks.
std::size_t input_bytes(const Call& call, int rank, int size);

// Whether what arrives would be written over blocks that this rank still has to send: input and output share memory, and not
// as algorithms expect it (collectives/schedule.h: the smaller one is this rank's own block of the other).
bool overwrites_its_input(const Call& call, int rank, int size);

}  // namespace altorch
