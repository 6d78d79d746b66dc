// SPDX-License-Identifier: BSD-3-Clause
// Collectives through the memory that the ranks of a node share: every one of torch's, uneven
// blocks included. Vectors are reduced in the order of the ranks, on every size and position alike,
// half types in float32.
#pragma once

#include <string>
#include <vector>

#include "transports/native_collectives.h"
#include "transports/shm/pattern.h"
#include "transports/shm/segment.h"

namespace altorch {

// Thread rules: one thread at a time. Never waits, and does not allocate.
class ShmCollectives : public NativeCollectives {
 public:
  // `processes`: by rank, where they may read each other's memory; otherwise none.
  // `ranks_of_group`: what errors call the ranks that share the segment, where they are only some
  // of a group.
  explicit ShmCollectives(shm::Segment segment, std::vector<shm::Process> processes = {},
                          std::vector<int> ranks_of_group = {})
      : segment_(std::move(segment)),
        processes_(std::move(processes)),
        ranks_of_group_(std::move(ranks_of_group)) {}

  std::string_view name() const override { return kName; }
  bool offers(const Call& call) const override { return has(call); }
  // A rank that makes another call never matches: the other ranks wait until the watchdog reports
  // the mismatch.
  bool compares_calls() const override { return true; }
  bool finishes_reductions() const override { return true; }
  void start(const Call& call, std::uint64_t identity, std::string_view protocol, Request& request) override;
  std::uint64_t steps() const override { return step_; }
  State test(Request& request, std::optional<Error>& error) override;
  // Always frees the buffers: only this rank writes to its tensors. A peer that still reads them
  // cannot complete its call: that takes the last step of this rank, which it publishes only after
  // all ranks have read.
  bool cancel(Request& request) override;
  WaitTarget wait_target() const override;

  static bool has(const Call& call);
  // ALTORCH_SHM_BYTES: what the memory of a group may take; 0: none is wanted.
  static std::size_t limit();
  static bool are_wanted() { return limit() > 0; }
  // For people: what happens in the call; `asked`: the protocol that ALTORCH_ROUTE names, or empty.
  static ExplainedProtocol describe(const Call& call, int ranks, std::string_view asked);
  static constexpr std::string_view kName = kShmCollectives;

 private:
  bool others_are_there();

  shm::Segment segment_;
  const std::vector<shm::Process> processes_;
  const std::vector<int> ranks_of_group_;
  std::uint64_t step_ = 0;  // the last step that this rank has published
  // The call in flight.
  shm::Job job_;
  const shm::Pattern* pattern_ = nullptr;
  std::uint64_t identity_ = 0;
  std::int64_t done_ = 0;   // steps
  bool published_ = false;  // whether the current step is published
};

}  // namespace altorch
