// SPDX-License-Identifier: BSD-3-Clause
// The schedules of all ranks of one call that goes by messages, built one at a time.
#pragma once

#include "base/operation.h"
#include "collectives/algorithm.h"
#include "select/decide.h"
#include "select/rules.h"
#include "simulate/network.h"

namespace altorch {

// Elements that the local steps of a round reduce.
inline std::int64_t reduced_elements(const Schedule& schedule, const Round& round) {
  std::int64_t elements = 0;
  for (auto i = round.locals_begin; i < round.locals_end; ++i) {
    const Step& step = schedule.steps[i];
    if (step.kind == StepKind::kReduce) elements += step.c.count;
    if (step.kind == StepKind::kCombine) elements += step.a.count;
  }
  return elements;
}

// Thread rules: any thread; it does not change. `algorithm` outlives it.
class Schedules {
 public:
  Schedules(const Algorithm& algorithm, const Operation& call, int ranks)
      : algorithm_(algorithm), call_(call), ranks_(ranks) {}

  Schedule of(int rank) const {
    return algorithm_.build({.rank = rank,
                             .size = ranks_,
                             .root = call_.root,
                             .count = call_.count,
                             .segment_count = algorithm_.pipelined ? segment_elements(call_.dtype) : 0});
  }
  // Whether all messages of the collective are the root's.
  bool is_star() const { return is_rooted(call_.kind) && algorithm_.name == "linear"; }
  // At least so many messages that a rank sends: known before a schedule is built.
  std::int64_t segments() const {
    return algorithm_.pipelined ? call_.count / segment_elements(call_.dtype) : 0;
  }
  OpKind kind() const { return call_.kind; }
  int ranks() const { return ranks_; }
  // Bytes of an element in a message. Half types that need staging are sent as float32.
  double element_bytes() const {
    const auto bytes = static_cast<double>(size_of(call_.dtype));
    return needs_staging(call_, ranks_, &algorithm_) ? std::max(bytes, 4.0) : bytes;
  }
  double cost(const CostModel& model) const {
    return algorithm_.cost(ranks_, static_cast<double>(call_.count) * element_bytes(), model);
  }
  // The most ranks that are simulated by events. A linear rooted collective serializes all messages
  // at its root: each event then makes all others start later, in quadratic time.
  int most_ranks() const { return is_star() ? 4096 : Network::kMostRanks; }

 private:
  const Algorithm& algorithm_;
  const Operation call_;
  const int ranks_;
};

}  // namespace altorch
