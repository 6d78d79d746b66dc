// SPDX-License-Identifier: BSD-3-Clause
#include "collectives/executor.h"

#include <cstring>

#include "reduction/reduce.h"

namespace altorch {

void Execution::start(const Schedule& schedule, Channel& channel, const Buffers& buffers, std::int64_t tag) {
  schedule_ = &schedule;
  channel_ = &channel;
  buffers_ = buffers;
  tag_ = tag;
  round_ = 0;
  error_.reset();
  requests_.clear();
  if (!schedule.rounds.empty()) post_round();
}

State Execution::advance(std::optional<Error>& error) {
  if (error_) {
    error = error_;
    return State::kFailed;
  }
  while (round_ < schedule_->rounds.size()) {
    if (!requests_.empty()) {
      const State state = channel_->test(requests_, error_);
      if (state == State::kPending) return state;
      if (state == State::kFailed) {
        if (!error_) error_.emplace(ErrorKind::kInternal, "A channel reported a failure without a reason.");
        error = error_;
        return state;
      }
    }
    if (++round_ < schedule_->rounds.size()) post_round();
  }
  return State::kDone;
}

bool Execution::cancel() {
  const bool free = requests_.empty() || channel_->cancel(requests_);
  requests_.clear();
  if (schedule_ != nullptr) round_ = schedule_->rounds.size();
  return free;
}

// Receives go first: a message that finds its receive posted needs no intermediate buffer.
void Execution::post_round() {
  const Round& round = schedule_->rounds[round_];
  const Step* const steps = schedule_->steps.data();
  requests_.clear();
  requests_.resize(round.messages_end - round.messages_begin);
  Request* request = requests_.data();
  for (auto i = round.messages_begin; i < round.messages_end; ++i) {
    const Step& step = steps[i];
    if (step.kind == StepKind::kReceive) {
      channel_->receive(address(step.a), bytes(step.a), step.peer, tag_, *request++);
    }
  }
  for (auto i = round.messages_begin; i < round.messages_end; ++i) {
    const Step& step = steps[i];
    if (step.kind == StepKind::kSend)
      channel_->send(address(step.a), bytes(step.a), step.peer, tag_, *request++);
  }
  for (auto i = round.locals_begin; i < round.locals_end; ++i) run_locally(steps[i]);
}

void Execution::run_locally(const Step& step) {
  if (step.kind == StepKind::kReduce) {
    altorch::reduce(buffers_.dtype, buffers_.op, address(step.a), address(step.b), address(step.c),
                    static_cast<std::size_t>(step.c.count));
  } else if (step.kind == StepKind::kCombine) {
    parts_.clear();
    for (int i = 0; i < parts_of(step); ++i) parts_.push_back(address(part_of(step, i)));
    combine(buffers_.dtype, buffers_.op, parts_, address(step.c), static_cast<std::size_t>(step.c.count));
  } else if (address(step.a) != address(step.c)) {
    std::memcpy(address(step.c), address(step.a), bytes(step.a));
  }
}

std::byte* Execution::address(const Slice& slice) const {
  void* base = buffers_.scratch;
  if (slice.region == Region::kInput) base = const_cast<void*>(buffers_.input);
  if (slice.region == Region::kOutput) base = buffers_.output;
  return static_cast<std::byte*>(base) + static_cast<std::size_t>(slice.offset) * size_of(buffers_.dtype);
}

std::size_t Execution::bytes(const Slice& slice) const {
  return static_cast<std::size_t>(slice.count) * size_of(buffers_.dtype);
}

}  // namespace altorch
