// SPDX-License-Identifier: BSD-3-Clause
#include "collectives/schedule_builder.h"

#include <utility>

namespace altorch {

Slice ScheduleBuilder::scratch(std::int64_t count) {
  const Slice slice{Region::kScratch, schedule_.scratch_count, count};
  schedule_.scratch_count += count;
  return slice;
}

void ScheduleBuilder::send(int peer, const Slice& from) {
  schedule_.steps.push_back({StepKind::kSend, peer, from, {}, {}});
}

void ScheduleBuilder::receive(int peer, const Slice& into) {
  schedule_.steps.push_back({StepKind::kReceive, peer, into, {}, {}});
}

void ScheduleBuilder::copy(const Slice& from, const Slice& to) {
  if (from.count > 0) locals_.push_back({StepKind::kCopy, -1, from, {}, to});
}

void ScheduleBuilder::reduce(const Slice& lower, const Slice& upper, const Slice& result) {
  if (result.count > 0) locals_.push_back({StepKind::kReduce, -1, lower, upper, result});
}

void ScheduleBuilder::combine(const Slice& others, const Slice& own, int place, const Slice& result) {
  if (result.count > 0) locals_.push_back({StepKind::kCombine, place, others, own, result});
}

void ScheduleBuilder::end_round() {
  auto& steps = schedule_.steps;
  const auto locals_begin = static_cast<std::uint32_t>(steps.size());
  steps.insert(steps.end(), locals_.begin(), locals_.end());
  locals_.clear();
  const auto end = static_cast<std::uint32_t>(steps.size());
  if (end != round_begin_) schedule_.rounds.push_back({round_begin_, locals_begin, locals_begin, end});
  round_begin_ = end;
}

Schedule ScheduleBuilder::finish() {
  end_round();
  return std::move(schedule_);
}

}  // namespace altorch
