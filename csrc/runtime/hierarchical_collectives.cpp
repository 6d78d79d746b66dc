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

// A long call is cut into about kPartsWanted parts. Shorter parts leave less of the call without
// overlap; longer parts wait less often for other ranks. Measured on two nodes of two and of four
// ranks: benchmarks/results/nodes-parts-16c-2026-11-30.jsonl.
constexpr std::int64_t kMinPartBytes = 256 << 10, kMaxPartBytes = 512 << 10, kMaxScaledPartBytes = 8 << 20;
constexpr std::int64_t kPartsWanted = 8;
// Nodes times rails there. Parts grow in proportion, so that messages do not shrink.
constexpr std::int64_t kMeasuredMembers = 4;

// Between so many members.
const Algorithm& algorithm_for(const Call& call, int members) {
  Operation operation;
  static_cast<Call&>(operation) = call;
  return *decide_among_algorithms(operation, members).algorithm;
}

}  // namespace

std::int64_t HierarchicalCollectives::part_elements(const Call& call, const hierarchical::Layout& layout) {
  const std::int64_t blocks = has_blocks(call.kind) ? layout.size() : 1, length = longest_block(call);
  const std::int64_t bytes = length * blocks * static_cast<std::int64_t>(size_of(call.dtype));
  const std::int64_t scale =
      std::max<std::int64_t>(1, std::int64_t{layout.nodes()} * layout.rails() / kMeasuredMembers);
  const std::int64_t part =
      std::min(scale * std::clamp(bytes / kPartsWanted, kMinPartBytes, kMaxPartBytes), kMaxScaledPartBytes);
  const std::int64_t longest = hierarchical::longest_part(call, layout, part);
  const std::int64_t parts = std::max<std::int64_t>(1, (length + longest - 1) / longest);
  return std::max<std::int64_t>(1, (length + parts - 1) / parts);
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
  // As this node's leader sees it: other ranks may have no stage between nodes.
  const int leader = layout_.leader_of(layout_.own_node());
  const hierarchical::Layout layout(node_.node_of_rank, leader, node_.leader_places);
  double seconds = cost(call, layout, model);
  for (const Stage& stage : hierarchical::outline(call, layout)) {
    if (!stage.is_on_node() || stage.is_own()) continue;
    Operation on_node;
    static_cast<Call&>(on_node) = stage.call;
    seconds += measured_seconds(On::kHost, on_node, static_cast<int>(layout_.neighbours().size()));
  }
  return seconds;
}

HierarchicalCollectives::HierarchicalCollectives(const Node& node, Channel& channel)
    : node_(node),
      layout_(node.node_of_rank, channel.rank(), node.leader_places),
      tags_(channel.max_tag()),
      running_{Running(channel), Running(channel)} {}

void HierarchicalCollectives::start(const Call& call, std::uint64_t identity, std::string_view,
                                    Request& request) {
  for (Running& part : running_) {
    if (!part.memory) throw Error(ErrorKind::kInternal, "a call came after one that had failed half-way");
    part.number = -1;
    part.stages.clear();
    part.stage = 0;
  }
  call_ = call;
  identity_ = identity;
  part_elements_ = part_elements(call, layout_);
  parts_ = std::max<std::int64_t>(1, (longest_block(call) + part_elements_ - 1) / part_elements_);
  begun_ = 0;
  request.handle = 1;
  begin_part(running_[0]);
  begin_stage(running_[0]);
}

bool HierarchicalCollectives::begin_part(Running& part) {
  const Running& beside = other(part);
  // Only two successive parts run at once: messages of parts k and k + 2 have the same tag.
  if (begun_ == parts_ || (!beside.over() && beside.number + 1 != begun_)) return false;
  part.number = begun_++;
  const std::int64_t begin = part.number * part_elements_;
  const std::int64_t count = std::min(longest_block(call_) - begin, part_elements_);
  const std::size_t element = size_of(call_.dtype);
  part.stages = hierarchical::plan_of(call_, layout_, {begin, count}, [&](std::int64_t elements) {
    return part.memory->beside.reserve(static_cast<std::size_t>(elements) * element);
  });
  part.stage = 0;
  part.begun_on_node = 0;
  part.on_node = static_cast<int>(std::ranges::count_if(
      part.stages, [](const Stage& stage) { return stage.is_on_node() && !stage.is_own(); }));
  return true;
}

// The order of calls on a node, the same on all its ranks, here for parts of three calls each:
//   part 0: call 0    part 1: call 0    part 0: calls 1, 2    part 2: call 0    part 1: calls 1, 2
// So a part with several calls on the node never ends before the part in front of it.
bool HierarchicalCollectives::has_turn_on_node(const Running& part) {
  if (node_is_busy()) return false;
  const Running& beside = other(part);
  const bool has_begun = beside.begun_on_node > 0;
  const bool has_more = beside.begun_on_node != beside.on_node;
  const bool is_before = beside.number >= 0 && beside.number == part.number - 1;
  if (part.begun_on_node == 0) return !is_before || !has_more || has_begun;
  if (part.number + 1 == parts_) return !is_before || !has_more;
  return beside.number == part.number + 1 && (!has_more || has_begun);
}

void HierarchicalCollectives::begin_stage(Running& part) {
  for (; !part.over() && part.stages[part.stage].is_own(); ++part.stage) {
    for (const hierarchical::Move& move : part.stages[part.stage].moves)
      std::memcpy(move.to, move.from, static_cast<std::size_t>(move.count) * size_of(call_.dtype));
  }
  if (part.over()) return;
  const Stage& stage = part.stages[part.stage];
  if (!stage.is_on_node()) return begin_messages(part, stage);
  if (!has_turn_on_node(part)) return;
  const std::uint64_t of_part = append_call(identity_, static_cast<std::uint64_t>(part.number));
  node_.shared->start(stage.call, append_call(of_part, static_cast<std::uint64_t>(stage.number)), {},
                      on_node_);
  part.doing = Doing::kOnNode;
  ++part.begun_on_node;
}

void HierarchicalCollectives::begin_messages(Running& part, const Stage& stage) {
  const int size = static_cast<int>(stage.members.size());
  part.between.become(stage.members, stage.own);
  const Call& call = stage.call;
  const Algorithm& algorithm = algorithm_for(call, size);
  // Members are one of each node, so that this rank always has the same place among as many.
  const Schedule& schedule = part.schedules.of(algorithm, call, stage.own, size);
  void* scratch =
      part.memory->scratch.reserve(static_cast<std::size_t>(schedule.scratch_count) * size_of(call.dtype));
  // Two parts that are under way at the same time never have one tag.
  const auto hash = static_cast<std::int64_t>(
      Fnv().add(identity_).add(static_cast<std::uint64_t>(stage.number)).value() >> 8);
  const std::int64_t first = tags_.first_engine();
  const std::int64_t tag = first | (((hash << 1) | (part.number & 1)) & (first - 1));
  part.doing = Doing::kMessages;
  part.execution.start(schedule, part.between, {call.input, call.output, scratch, call.dtype, call.op}, tag);
}

std::uint64_t HierarchicalCollectives::steps() const {
  constexpr std::uint64_t kMostRounds = 1 << 20;
  return stages_done_ * kMostRounds + running_[0].execution.round() + running_[1].execution.round() +
         (node_.shared ? node_.shared->steps() : 0);
}

State HierarchicalCollectives::test(Request& request, std::optional<Error>& error) {
  if (request.handle == 0) return State::kDone;
  bool moved = true;
  while (moved) {
    moved = false;
    for (Running& part : running_) {
      if (part.over() && !begin_part(part)) continue;
      if (part.doing == Doing::kNothing) begin_stage(part);
      if (part.over()) moved = true;  // the rest of it was copies of this rank alone
      if (part.doing == Doing::kNothing) continue;
      const bool on_node = part.doing == Doing::kOnNode;
      const State state = on_node ? node_.shared->test(on_node_, error) : part.execution.advance(error);
      if (state == State::kFailed) return state;
      if (state == State::kPending) continue;
      part.doing = Doing::kNothing;
      ++part.stage;
      ++stages_done_;
      moved = true;
    }
  }
  if (begun_ < parts_ || !running_[0].over() || !running_[1].over()) return State::kPending;
  for (Running& part : running_) {
    part.memory->scratch.trim();
    part.memory->beside.trim();
  }
  request.handle = 0;
  return State::kDone;
}

WaitTarget HierarchicalCollectives::wait_target() const {
  for (const Running& part : running_) {
    if (part.doing == Doing::kMessages) return {};
  }
  return node_is_busy() ? node_.shared->wait_target() : WaitTarget();
}

// MPI may write to what is in flight for as long as the process lives.
bool HierarchicalCollectives::cancel(Request& request) {
  if (request.handle == 0) return true;
  request.handle = 0;
  bool clean = true;
  for (Running& part : running_) {
    if (part.doing == Doing::kMessages) clean = part.execution.cancel() && clean;
    if (part.doing == Doing::kOnNode) clean = node_.shared->cancel(on_node_) && clean;
    part.doing = Doing::kNothing;
  }
  for (Running& part : running_) {
    if (!clean) leak_intentionally(std::move(part.memory));
  }
  return clean;
}

}  // namespace altorch
