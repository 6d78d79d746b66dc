// SPDX-License-Identifier: BSD-3-Clause
// Schedules that were built before: a training step asks for the same ones again and again.
#pragma once

#include <cstddef>
#include <memory>
#include <unordered_map>

#include "base/call.h"
#include "collectives/algorithm.h"
#include "select/rules.h"

namespace altorch {

// Thread rules: one user at a time.
class ScheduleCache {
 public:
  // The schedule of a call for `rank` of `size`, which must be the same for all calls; stays valid
  // until the next one.
  const Schedule& of(const Algorithm& algorithm, const Call& call, int rank, int size) {
    Problem problem{rank, size, call.root, call.count, call.input_counts, call.output_counts, 0};
    if (algorithm.pipelined) problem.segment_count = segment_elements(call.dtype);
    if (!call.uneven()) return even(algorithm, problem);
    return uneven_ = algorithm.build(problem);
  }

 private:
  const Schedule& even(const Algorithm& algorithm, const Problem& problem) {
    const Key key{&algorithm, problem.count, problem.segment_count, problem.root};
    const auto found = schedules_.find(key);
    if (found != schedules_.end()) return *found->second;
    auto built = std::make_unique<Schedule>(algorithm.build(problem));
    const std::size_t steps = built->steps.size();
    if (steps_ + steps > kMostSteps) {
      schedules_.clear();
      steps_ = 0;
    }
    steps_ += steps;
    return *schedules_.emplace(key, std::move(built)).first->second;
  }

  static constexpr std::size_t kMostSteps = 1 << 15;  // about 3 MB
  struct Key {
    const Algorithm* algorithm;
    std::int64_t count, segment_count;
    int root;
    bool operator==(const Key&) const = default;
  };
  struct Hash {
    std::size_t operator()(const Key& key) const {
      auto hash = reinterpret_cast<std::uintptr_t>(key.algorithm);
      hash = hash * 31 + static_cast<std::size_t>(key.count);
      hash = hash * 31 + static_cast<std::size_t>(key.segment_count);
      return (hash * 31 + static_cast<std::size_t>(key.root)) * 0x9E3779B97F4A7C15ull >> 7;
    }
  };
  std::unordered_map<Key, std::unique_ptr<Schedule>, Hash> schedules_;
  std::size_t steps_ = 0;
  Schedule uneven_;  // not kept: the counts of such calls rarely come again
};

}  // namespace altorch
