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
    const std::int64_t segment = algorithm.pipelined ? segment_elements(call.dtype) : 0;
    const auto problem = [&] {
      return Problem{rank, size, call.root, call.count, call.input_counts, call.output_counts, segment};
    };
    if (call.uneven()) return uneven_ = algorithm.build(problem());
    const Key key{&algorithm, call.count, segment, call.root};
    const auto found = schedules_.find(key);
    return found != schedules_.end() ? *found->second : keep(key, algorithm.build(problem()));
  }

 private:
  struct Key {
    const Algorithm* algorithm;
    std::int64_t count, segment_count;
    int root;
    bool operator==(const Key&) const = default;
  };

  const Schedule& keep(const Key& key, Schedule schedule) {
    auto built = std::make_unique<Schedule>(std::move(schedule));
    const std::size_t steps = built->steps.size();
    if (steps_ + steps > kMostSteps) {
      schedules_.clear();
      steps_ = 0;
    }
    steps_ += steps;
    return *schedules_.emplace(key, std::move(built)).first->second;
  }

  static constexpr std::size_t kMostSteps = 1 << 15;  // about 3 MB
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
