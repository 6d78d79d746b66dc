// SPDX-License-Identifier: BSD-3-Clause
#include "transports/shm/collectives.h"

#include <algorithm>

#include "base/env.h"
#include "platform/cores.h"

namespace altorch {
namespace {

constexpr std::uint64_t kMostElements = std::uint64_t{1} << 56;  // of a block: their bytes can be counted

shm::Place place_of(const shm::Segment& segment, bool reads) {
  return {segment.size(), static_cast<std::int64_t>(segment.area_bytes()), segment.has_core_each(), reads};
}

}  // namespace

bool ShmCollectives::has(const Call& call) {
  if (call.is_message()) return false;
  // In a half type the products with the factor would be rounded once more than elsewhere.
  return !(call.reduces() && call.op == ReduceOp::kPremulSum && is_half(call.dtype));
}

std::size_t ShmCollectives::limit() { return static_cast<std::size_t>(numeric_setting("ALTORCH_SHM_BYTES")); }

ExplainedProtocol ShmCollectives::describe(const Call& call, int ranks, std::string_view asked) {
  const std::vector<std::string> cores = {usable_cores()};  // as far as is known
  shm::Segment segment(nullptr, 0, ranks, shm::Segment::area_bytes(ranks, limit()), count_cores(cores));
  const std::vector<shm::Process> processes(
      static_cast<std::size_t>(ranks));  // which may, as far as is known
  const shm::Place place = place_of(segment, /*reads=*/true);
  const shm::Job job{.call = call,
                     .segment = &segment,
                     .longest_block = longest_block(call),
                     .processes = processes,
                     .in_place_from = shm::in_place_from(call, place, asked)};
  const std::int64_t steps = shm::pattern_of(call, place, asked).steps(job);
  ExplainedProtocol said = shm::explain_pattern(call, place, asked);
  said.steps += "; " + std::to_string(steps) + (steps == 1 ? " step\n" : " steps\n");
  return said;
}

void ShmCollectives::start(const Call& call, std::uint64_t identity, std::string_view protocol,
                           Request& request) {
  const shm::Place place = place_of(segment_, !processes_.empty());
  pattern_ = &shm::pattern_of(call, place, protocol);
  job_ = {.call = call,
          .segment = &segment_,
          .first_step = step_ + 1,
          .longest_block = longest_block(call),
          .processes = processes_,
          .in_place_from = shm::in_place_from(call, place, protocol),
          .ranks_of_group = ranks_of_group_};
  job_.steps = job_.ranks_tell() ? 1 : pattern_->steps(job_);
  job_.word = shm::word_of(job_);
  identity_ = identity;
  done_ = 0;
  published_ = false;
  request.handle = 1;
}

bool ShmCollectives::others_are_there() {
  switch (pattern_->waits) {
    case shm::Pattern::Waits::kForAll:
      break;
    case shm::Pattern::Waits::kForRoot:
      return segment_.rank() == job_.call.root || segment_.is_at(job_.call.root, step_, identity_);
    case shm::Pattern::Waits::kRootForAll:
      if (segment_.rank() != job_.call.root) return true;
      break;
  }
  return segment_.all_are_at(step_, identity_);
}

State ShmCollectives::test(Request& request, std::optional<Error>& error) {
  if (request.handle == 0) return State::kDone;
  while (true) {
    if (!published_) {
      if (!segment_.all_at(step_)) return State::kPending;
      if (done_ < 2) put_counts(job_, done_);
      pattern_->put(job_, done_);
      segment_.publish(++step_, identity_, job_.word);
      published_ = true;
    }
    if (!others_are_there()) return State::kPending;
    if (done_ == 0 && (error = disagreement(job_))) return State::kFailed;
    if (done_ == 0 && job_.ranks_tell()) {
      for (int rank = 0; rank < segment_.size(); ++rank) {
        const std::uint64_t told = segment_.word(rank, step_);
        if (told > kMostElements) {
          error = Error(ErrorKind::kMismatch, "rank " + std::to_string(job_.rank_of_group(rank)) +
                                                  " of the group tells of a block of " +
                                                  std::to_string(told) + " elements, which no tensor has");
          return State::kFailed;
        }
        job_.longest_block = std::max(job_.longest_block, static_cast<std::int64_t>(told));
      }
      job_.steps = pattern_->steps(job_);
    }
    pattern_->get(job_, done_);
    published_ = false;
    if (++done_ < job_.steps) continue;
    request.handle = 0;
    return State::kDone;
  }
}

WaitTarget ShmCollectives::wait_target() const {
  const bool for_root = published_ && pattern_->waits == shm::Pattern::Waits::kForRoot;
  return segment_.wait_target(for_root ? job_.call.root : segment_.missing(), step_);
}

bool ShmCollectives::cancel(Request& request) {
  request.handle = 0;
  return true;
}

}  // namespace altorch
