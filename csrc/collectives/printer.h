// SPDX-License-Identifier: BSD-3-Clause
// Schedules as text, for `altorch explain`.
#pragma once

#include <string>

#include "collectives/algorithm.h"

namespace altorch {

// What one rank does, a line per message or local step, for example
//
//   all_reduce recursive_doubling, rank 1 of 4, 256 elements
//   2 rounds of messages, 512 elements sent, 256 elements of scratch
//   round 1     receive scratch[0:256] from 0
//               send output[0:256] to 0
//   then        output[0:256] = scratch[0:256] (op) output[0:256]
//
// Slices are in elements, as in Python. After `longest` rounds the rest is only counted; `longest`
// < 0: all of them.
std::string describe(const Algorithm& algorithm, const Problem& problem, int longest = 16);

}  // namespace altorch
