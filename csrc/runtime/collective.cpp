// SPDX-License-Identifier: BSD-3-Clause
#include "runtime/collective.h"

#include <algorithm>
#include <cstring>

#include "base/leak_intentionally.h"
#include "base/shape.h"
#include "reduction/reduce.h"
#include "runtime/buffer_overlap.h"
#include "runtime/fingerprint.h"
#include "select/costs.h"

namespace altorch {
namespace {

// Algorithms whose scratch grows with the vector run on pieces of this many bytes.
constexpr std::int64_t kPieceBytes = 8 << 20;

// What messages take between two processes of one node: all_reduce of 32 B took 5.0 us, of 1 MiB
// 214 us, among two ranks on 2 cores. A network differs.
constexpr CostModel kMessages{.alpha = 5e-6, .beta = 1.6e-10, .gamma = 8e-11};

std::unique_ptr<HierarchicalCollectives> hierarchy_of(Links& links) {
  const Node* node = links.node();
  return node ? std::make_unique<HierarchicalCollectives>(*node, links.channel()) : nullptr;
}

std::vector<NativeCollectives*> all_of(NativeCollectives* hierarchical, Links& links) {
  std::vector<NativeCollectives*> all = links.collectives();
  if (hierarchical) all.insert(all.begin(), hierarchical);
  return all;
}

// World::node_count; 0: unknown.
int node_count_of(Links& links, std::span<NativeCollectives* const> all) {
  if (const Node* node = links.node()) return std::ranges::max(node->node_of_rank) + 1;
  const bool one = links.channel().size() == 1 ||
                   std::ranges::any_of(all, [](const auto* each) { return each->name() == kShmCollectives; });
  return one ? 1 : 0;
}

World world_of(Links& links, std::span<NativeCollectives* const> all) {
  World world{.ranks = links.channel().size(), .node_count = node_count_of(links, all)};
  for (const NativeCollectives* each : all) {
    world.native.push_back({each->name(), [each](const Call& asked) { return each->offers(asked); },
                            each->finishes_reductions(), each->takes_staged()});
  }
  return world;
}

}  // namespace

Collective::Collective(Links& links, const Rules& rules)
    : hierarchical_(hierarchy_of(links)),
      native_(all_of(hierarchical_.get(), links)),
      world_(world_of(links, native_)),
      rules_(rules),
      channel_(links.channel()),
      tags_(channel_.max_tag()) {}

void Collective::start(const Operation& operation, std::uint64_t fingerprint) {
  if (!memory_) throw Error(ErrorKind::kInternal, "a call came after one that had failed half-way");
  operation_ = &operation;
  if (overwrites_its_input(operation, channel_.rank(), channel_.size())) set_input_apart();
  fingerprint_ = fingerprint;
  route_ = decide(*operation_, world_, rules_);
  tag_ = tags_.first_engine() | collective_tag(operation, fingerprint_, tags_.engine_bits);
  staged_ = is_staged(route_, *operation_, world_);
  piece_offset_ = 0;
  piece_length_ = std::max<std::int64_t>(operation.count, 1);
  if (staged_) {
    memory_->staging.begin(*operation_, channel_.rank(), channel_.size());
  } else if (route_.algorithm && !route_.algorithm->pipelined &&
             (operation.reduces() && !has_blocks(operation.kind))) {
    const auto most = kPieceBytes / static_cast<std::int64_t>(size_of(operation.dtype));
    piece_length_ = std::min(piece_length_, most);
  }
  if (staged_) memory_->staging.next(piece_);
  start_piece();
}

double Collective::estimate(const Operation& operation) const {
  if (world_.ranks < 2) return 0;
  const Route route = decide(operation, world_, rules_);
  if (hierarchical_ && route.name == HierarchicalCollectives::kName)
    return hierarchical_->estimate(operation, kMessages);
  if (route.native != kNoNative && route.name == kShmCollectives)
    return measured_seconds(On::kHost, operation, world_.ranks);
  const Algorithm& algorithm =
      route.algorithm ? *route.algorithm : *decide_among_algorithms(operation, world_.ranks).algorithm;
  const std::int64_t bytes = payload_bytes(operation, world_.ranks);
  const std::int64_t counted = has_blocks(operation.kind) ? bytes / world_.ranks : bytes;
  return algorithm.cost(world_.ranks, static_cast<double>(counted), kMessages);
}

void Collective::set_input_apart() {
  apart_ = *operation_;
  const std::size_t bytes = input_bytes(apart_, channel_.rank(), channel_.size());
  void* const copy = memory_->input_copy.reserve(bytes);
  apart_.input = std::memcpy(copy, apart_.input, bytes);
  operation_ = &apart_;
}

void Collective::start_piece() {
  if (!staged_) {
    piece_ = *operation_;
    if (piece_length_ < piece_.count) {
      const auto skip = static_cast<std::size_t>(piece_offset_) * size_of(piece_.dtype);
      piece_.count = std::min(piece_length_, operation_->count - piece_offset_);
      if (piece_.input) piece_.input = static_cast<const char*>(piece_.input) + skip;
      if (piece_.output) piece_.output = static_cast<char*>(piece_.output) + skip;
    }
  }
  if (!route_.algorithm) return native().compares_calls() ? start_native() : start_agreement();
  phase_ = Phase::kSchedule;
  run_schedule(piece_, *route_.algorithm);
}

void Collective::start_native() {
  phase_ = Phase::kNative;
  native().start(piece_, append_call(operation_->history, fingerprint_), route_.protocol, native_request_);
}

// MPI compares nothing when ranks call the same collective with different arguments, and what
// follows is its affair. So the ranks compare fingerprints first, along the rounds of a barrier:
// cheap beside the sizes that go native.
void Collective::start_agreement() {
  const Algorithm* barrier = find_algorithm(OpKind::kBarrier, "dissemination");
  Problem problem{.rank = channel_.rank(), .size = channel_.size()};
  agreement_ = barrier->build(problem);
  memory_->agreement.assign(1 + agreement_.steps.size(), fingerprint_);
  for (std::size_t i = 0; i < agreement_.steps.size(); ++i) {
    Step& step = agreement_.steps[i];
    if (step.kind == StepKind::kSend) step.a = {Region::kInput, 0, 1};
    if (step.kind == StepKind::kReceive) step.a = {Region::kOutput, static_cast<std::int64_t>(i), 1};
  }
  phase_ = Phase::kAgreement;
  execution_.start(
      agreement_, channel_,
      {memory_->agreement.data(), memory_->agreement.data() + 1, nullptr, DType::kUInt64, ReduceOp::kSum},
      tag_);
}

std::optional<Error> Collective::check_agreement() const {
  for (const Step& step : agreement_.steps) {
    if (step.kind != StepKind::kReceive) continue;
    const std::uint64_t theirs = memory_->agreement[static_cast<std::size_t>(step.a.offset) + 1];
    if (theirs == memory_->agreement[0]) continue;
    return Error(ErrorKind::kMismatch, "rank " + std::to_string(step.peer) + " of the group called " +
                                           describe_fingerprint(theirs) + ", this rank " +
                                           describe_fingerprint(memory_->agreement[0]));
  }
  return std::nullopt;
}

void Collective::run_schedule(const Operation& operation, const Algorithm& algorithm) {
  const Schedule& schedule = schedules_.of(algorithm, operation, channel_.rank(), channel_.size());
  void* scratch =
      memory_->scratch.reserve(static_cast<std::size_t>(schedule.scratch_count) * size_of(operation.dtype));
  execution_.start(schedule, channel_,
                   {operation.input, operation.output, scratch, operation.dtype, operation.op}, tag_);
}

State Collective::advance_piece(std::optional<Error>& error, bool& moved) {
  if (phase_ == Phase::kNative) {
    const std::uint64_t before = native().steps();
    const State state = native().test(native_request_, error);
    moved |= native().steps() != before;
    return state;
  }
  const std::size_t before = execution_.round();
  const State state = execution_.advance(error);
  moved |= execution_.round() != before;
  return state;
}

State Collective::advance(std::optional<Error>& error, bool& moved) {
  while (true) {
    const State state = advance_piece(error, moved);
    if (state != State::kDone) return state;
    if (phase_ == Phase::kAgreement) {
      error = check_agreement();
      if (error) return State::kFailed;
      start_native();
      continue;
    }
    finish_piece();
    if (!next_piece()) {
      phase_ = Phase::kIdle;
      memory_->scratch.trim();
      memory_->input_copy.trim();
      return State::kDone;
    }
    start_piece();
  }
}

void Collective::finish_piece() {
  if (staged_) return memory_->staging.finish_piece();
  if (operation_->op != ReduceOp::kAvg || !operation_->reduces()) return;
  if (route_.algorithm ? route_.algorithm->combines : native().finishes_reductions())
    return;  // it is the mean
  const auto count = static_cast<std::size_t>(result_count(piece_, channel_.rank(), channel_.size()));
  if (count > 0) average(piece_.dtype, piece_.output, channel_.size(), count);
}

bool Collective::next_piece() {
  if (staged_) return memory_->staging.next(piece_);
  piece_offset_ += piece_length_;
  return piece_offset_ < operation_->count && piece_length_ < operation_->count;
}

bool Collective::cancel() {
  const bool clean = phase_ == Phase::kNative ? native().cancel(native_request_) : execution_.cancel();
  phase_ = Phase::kIdle;
  if (!clean) leak_intentionally(std::move(memory_));  // MPI may write to it for as long as the process lives
  return clean;
}

}  // namespace altorch
