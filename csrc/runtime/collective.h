// SPDX-License-Identifier: BSD-3-Clause
// One collective on its way: a resumable state machine over a group's links. It never blocks and
// owns no thread.
#pragma once

#include <chrono>
#include <memory>
#include <optional>

#include "base/operation.h"
#include "collectives/executor.h"
#include "runtime/hierarchical_collectives.h"
#include "runtime/schedule_cache.h"
#include "runtime/scratch.h"
#include "runtime/staging.h"
#include "runtime/tag_layout.h"
#include "select/decide.h"
#include "transports/links.h"

namespace altorch {

// Reused from one operation to the next, so that a repeated operation allocates nothing.
// Thread rules: one user at a time.
class Collective {
 public:
  Collective(Links& links, const Rules& rules);

  // Posts the first messages. The operation and its buffers must stay until the run is done or
  // cancelled. Its timeout is the watchdog's business (watchdog.h), not looked at here. Throws
  // Error, as advance() does, for example if memory is out; then cancel() must be called, too.
  void start(const Operation& operation, std::uint64_t fingerprint);
  // Moves on as far as possible; `moved` becomes true where that was a step, and is never set to
  // false. On kFailed `error` says why, and cancel() must be called.
  State advance(std::optional<Error>& error, bool& moved);
  // Withdraws what is in flight; false when buffers remain in use (see Channel::cancel). Memory of
  // its own that is still in use then is never released, and the object not to be used again.
  bool cancel();
  // As NativeCollectives.
  WaitTarget wait_target() { return phase_ == Phase::kNative ? native().wait_target() : WaitTarget(); }
  const Route& route() const { return route_; }
  // Seconds that a call would take: through shared memory by measured rows (select/costs.h), over
  // messages by the cost model. Any thread.
  double estimate(const Operation& operation) const;

 private:
  enum class Phase { kIdle, kAgreement, kNative, kSchedule };

  void set_input_apart();
  void start_piece();
  bool next_piece();
  NativeCollectives& native() { return *native_[static_cast<std::size_t>(route_.native)]; }
  void start_native();
  void start_agreement();
  void run_schedule(const Operation& operation, const Algorithm& algorithm);
  void finish_piece();
  State advance_piece(std::optional<Error>& error, bool& moved);
  std::optional<Error> check_agreement() const;

  const std::unique_ptr<HierarchicalCollectives>
      hierarchical_;  // null: the group is on one node, or alone on each
  const std::vector<NativeCollectives*> native_;
  const World world_;
  const Rules& rules_;
  Channel& channel_;
  const TagLayout tags_;

  const Operation* operation_ = nullptr;
  Operation apart_;  // the operation with a copy of the input, where the output would be written over that
  Route route_;
  Phase phase_ = Phase::kIdle;
  std::uint64_t fingerprint_ = 0;
  std::int64_t tag_ = 0;
  bool staged_ = false;
  Operation piece_;                // what runs now: the operation, or one piece of it
  std::int64_t piece_offset_ = 0;  // elements, when a vector is cut without staging
  std::int64_t piece_length_ = 0;

  // What transports may write to and read from while a call is under way.
  struct Memory {
    Staging staging;
    Scratch scratch;
    Scratch input_copy;
    std::vector<std::uint64_t> agreement;
  };
  std::unique_ptr<Memory> memory_ = std::make_unique<Memory>();
  ScheduleCache schedules_;
  Schedule agreement_;  // the barrier in which ranks compare what they call
  Execution execution_;
  Request native_request_;
};

}  // namespace altorch
