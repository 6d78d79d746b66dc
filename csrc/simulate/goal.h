// SPDX-License-Identifier: BSD-3-Clause
// The schedules of a collective as a GOAL program, the input of LogGOPSim (Hoefler, Schneider and
// Lumsdaine, "LogGOPSim: simulating large-scale applications in the LogGOPS model", 2010).
#pragma once

#include <iosfwd>

#include "base/operation.h"
#include "simulate/network.h"

namespace altorch {

// Writes every rank's messages, round after round, and reductions as `calc` of nanoseconds. Throws
// Error(kInvalidArgument) where the call does not go by messages among all ranks (through the
// memory of one node, or by plans over nodes), and for more than kMostGoalSteps; writes nothing
// then. Any thread.
void write_goal(std::ostream& out, const Operation& call, const Network& network);

// Sends, receives and local steps of all ranks together.
inline constexpr std::int64_t kMostGoalSteps = 10'000'000;

}  // namespace altorch
