// SPDX-License-Identifier: BSD-3-Clause
#include "runtime/hierarchical_collectives.h"

#include <algorithm>
#include <cstring>

#include "base/fnv.h"
#include "base/leak_intentionally.h"
#include "base/operation.h"
#include "base/shape.h"
#include "runtime/fingerprint.h"
#include "select/costs.h"
#include "select/decide.h"

namespace altorch {

using hierarchical::Stage;

namespace {

// A longer vector, and blocks that need more memory, are carried in parts where the plan allows it.
constexpr std::int64_t kPart = 8 << 20;

// Between so many members.
const Algorithm& algorithm_for(const Call& call, int members) {
  Operation operation;
  static_cast<Call&>(operation) = call;
  return *decide_among_algorithms(operation, members).algorithm;
}

}  // namespace

std::int64_t HierarchicalCollectives::part_elements(const Call& call, const hierarchical::Layout& layout) {
  return hierarchical::longest_part(call, layout, kPart);
}

double HierarchicalCollectives::cost(const Call& call, const hierarchical::Layout& layout,
                                     const CostModel& model) {
  double seconds = 0;
  for (const Stage& stage : hierarchical::outline(call, layout)) {
    if (stage.is_on_node()) continue;
    const int members = static_cast<int>(stage.members.size());
    const auto bytes = static_cast<double>(stage.call.count) * static_cast<double>(size_of(call.dtype));
    seconds += algorithm_for(stage.call, members).cost(members, bytes, model);
  }
  return seconds;
}

double HierarchicalCollectives::estimate(const Call& call, const CostModel& model) const {
  double seconds = cost(call, layout_, model);
  for (const Stage& stage : hierarchical::outline(call, layout_)) {
    if (!stage.is_on_node() || stage.is_own()) continue;
    Operation on_node;
    static_cast<Call&>(on_node) = stage.call;
    seconds += measured_seconds(On::kHost, on_node, static_cast<int>(layout_.neighbours().size()));
  }
  return seconds;
}

HierarchicalCollectives::HierarchicalCollectives(const Node& node, Channel& channel)
    : node_(node),
      layout_(node.node_of_rank, channel.rank()),
      tag_bits_(engine_tag_bits(channel)),
      between_(channel) {}

void HierarchicalCollectives::start(const Call& call, std::uint64_t identity, std::string_view,
                                    Request& request) {
  if (!memory_) throw Error(ErrorKind::kInternal, "a call came after one that had failed half-way");
  call_ = call;
  identity_ = identity;
  done_ = 0;
  request.handle = 1;
  start_part();
}

bool HierarchicalCollectives::start_part() {
  const std::int64_t length = longest_block(call_);
  if (done_ > 0 && done_ >= length) return false;
  const std::int64_t count = std::min(length - done_, part_elements(call_, layout_));
  const std::size_t element = size_of(call_.dtype);
  stages_ = hierarchical::plan_of(call_, layout_, {done_, count}, [&](std::int64_t elements) {
    return memory_->beside.reserve(static_cast<std::size_t>(elements) * element);
  });
  stage_ = 0;
  done_ += std::max<std::int64_t>(count, 1);
  start_stage();
  return true;
}

void HierarchicalCollectives::start_stage() {
  for (; stage_ < stages_.size() && stages_[stage_].is_own(); ++stage_) {
    for (const hierarchical::Move& move : stages_[stage_].moves)
      std::memcpy(move.to, move.from, static_cast<std::size_t>(move.count) * size_of(call_.dtype));
  }
  if (stage_ == stages_.size()) return;
  const Stage& stage = stages_[stage_];
  messages_fly_ = !stage.is_on_node();
  if (messages_fly_) return start_messages(stage);
  node_.shared->start(stage.call, append_call(identity_, static_cast<std::uint64_t>(stage.number)), {},
                      on_node_);
}

void HierarchicalCollectives::start_messages(const Stage& stage) {
  const int size = static_cast<int>(stage.members.size());
  between_.become(stage.members, stage.own);
  const Call& call = stage.call;
  const Algorithm& algorithm = algorithm_for(call, size);
  // Members are one of each node, so that this rank always has the same place among as many.
  const Schedule& schedule = schedules_.of(algorithm, call, stage.own, size);
  void* scratch =
      memory_->scratch.reserve(static_cast<std::size_t>(schedule.scratch_count) * size_of(call.dtype));
  const auto hash = static_cast<std::int64_t>(
      Fnv().add(identity_).add(static_cast<std::uint64_t>(stage.number)).value() >> 8);
  const std::int64_t half = std::int64_t{1} << tag_bits_;
  execution_.start(schedule, between_, {call.input, call.output, scratch, call.dtype, call.op},
                   half | (hash & (half - 1)));
}

std::uint64_t HierarchicalCollectives::steps() const {
  constexpr std::uint64_t kMostRounds = 1 << 20;
  return stages_done_ * kMostRounds + execution_.round() + (node_.shared ? node_.shared->steps() : 0);
}

State HierarchicalCollectives::test(Request& request, std::optional<Error>& error) {
  if (request.handle == 0) return State::kDone;
  do {
    while (stage_ < stages_.size()) {
      const State state = messages_fly_ ? execution_.advance(error) : node_.shared->test(on_node_, error);
      if (state != State::kDone) return state;
      ++stages_done_;
      ++stage_;
      start_stage();
    }
  } while (start_part());
  memory_->scratch.trim();
  memory_->beside.trim();
  request.handle = 0;
  return State::kDone;
}

WaitTarget HierarchicalCollectives::wait_target() const {
  return messages_fly_ || !node_.shared ? WaitTarget() : node_.shared->wait_target();
}

bool HierarchicalCollectives::cancel(Request& request) {
  if (request.handle == 0) return true;
  request.handle = 0;
  if (stage_ == stages_.size()) return true;
  const bool clean = messages_fly_ ? execution_.cancel() : node_.shared->cancel(on_node_);
  if (!clean) leak_intentionally(std::move(memory_));  // MPI may write to it for as long as the process lives
  return clean;
}

}  // namespace altorch
