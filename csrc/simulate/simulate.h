// SPDX-License-Identifier: BSD-3-Clause
// How long a collective on host memory takes in a group that need not exist: the route that
// decide() takes, its schedules and plans, over a described network. Stages through the memory of a
// node take the measured times of select/costs.h.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/operation.h"
#include "simulate/network.h"

namespace altorch {

struct SimulatedStage {
  std::string text;           // "all_reduce of 8 KiB between 64 nodes along each of 8 rails, by ring"
  double seconds = 0;         // as often as the stage runs
  std::int64_t messages = 0;  // of all ranks that take part
  std::string source;         // what the time comes from: "events", "formula", "measured", "given"
  // Only for source "events" and "formula": the terms of the algorithm's cost formula, in seconds.
  double latency = 0, transfer = 0, reduction = 0;
};

struct Simulated {
  std::string route;                    // as `altorch explain` names it: an algorithm, "hierarchical", "shm"
  double seconds = 0, lower_bound = 0;  // 0: none, through the memory of one node
  std::vector<SimulatedStage> stages;
};

// Above this number of messages the algorithm's cost formula replaces the events, to bound memory.
// See also Schedules::most_ranks().
inline constexpr std::int64_t kMostSimulatedMessages = 40'000'000;

// `call`: a collective on host memory; its buffers are not read. Throws Error(kInvalidArgument) for
// messages, CUDA tensors, uneven blocks, and networks that Network::check() refuses. `progress`:
// called with the share of messages that are done, 0 to 1; an exception that it throws ends the
// simulation. Any thread.
Simulated simulate(const Operation& call, const Network& network,
                   const std::function<void(double)>& progress = {});

}  // namespace altorch
