// SPDX-License-Identifier: BSD-3-Clause
// Runs a Schedule on a Channel. The one interpreter of all algorithms: it starts no thread, waits
// for no peer and, once warm, allocates nothing, so a caller may run it inline or keep many
// executions going at once.
//
//   Execution execution;
//   execution.start(schedule, channel, {input, output, scratch, dtype, op}, tag);
//   while ((state = execution.advance(error)) == State::kPending) wait.pause();
//   if (state == State::kFailed) buffers_free = execution.cancel();
//
// Thread rules: one thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "base/dtype.h"
#include "base/error.h"
#include "base/reduce_op.h"
#include "collectives/schedule.h"
#include "transports/channel.h"

namespace altorch {

// The memory behind the regions of a schedule. Pointers may be null where the schedule does not use
// the region.
struct Buffers {
  const void* input = nullptr;
  void* output = nullptr;
  void* scratch = nullptr;  // Schedule::scratch_count elements
  DType dtype = DType::kUInt8;
  ReduceOp op = ReduceOp::kSum;
};

class Execution {
 public:
  // Posts the messages of the first round and runs its local steps. `schedule`, `channel` and the
  // memory must stay until the execution is done or cancelled; `tag` must not be in use for other
  // messages between these ranks that are under way in the same order of calls. An execution that
  // is done or cancelled may be started again.
  void start(const Schedule& schedule, Channel& channel, const Buffers& buffers, std::int64_t tag);

  // The index of the round that is in flight.
  std::size_t round() const { return round_; }
  // Tests the messages in flight, posts further rounds and runs their local steps, until a message
  // is pending. kPending: the caller calls it again. kDone: the output is complete. kFailed:
  // `error` is set, messages may be in flight, and the caller calls cancel(). This and start() may
  // throw (memory, Channel::test(), a reduction); the caller then calls cancel(), too.
  State advance(std::optional<Error>& error);

  // Withdraws what is in flight; see Channel::cancel for the meaning of false.
  bool cancel();

 private:
  void post_round();
  void run_locally(const Step& step);
  // Only receives and results lead to memory that is written.
  std::byte* address(const Slice& slice) const;
  std::size_t bytes(const Slice& slice) const;

  const Schedule* schedule_ = nullptr;
  Channel* channel_ = nullptr;
  Buffers buffers_;
  std::int64_t tag_ = 0;
  std::size_t round_ = 0;  // the one that is in flight
  std::vector<Request> requests_;
  std::vector<const void*> parts_;
  std::optional<Error> error_;
};

}  // namespace altorch
