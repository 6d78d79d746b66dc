// SPDX-License-Identifier: BSD-3-Clause
// What `altorch trace` is told of one group.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "runtime/communicator.h"
#include "trace/trace_board.h"

namespace altorch::backend {

// Listed from its making to its end, which must come before that of what it was given. Thread
// rules: any thread asks.
class GroupTrace : public TraceSource {
 public:
  // `log`: of its calls; may be null. `on_devices`: numbers of calls that a device has; does not
  // wait.
  using OnDevices = std::function<std::vector<std::uint64_t>()>;
  GroupTrace(const Communicator& group, std::shared_ptr<const FlightLog> log, OnDevices on_devices);
  ~GroupTrace() override;
  GroupTrace(const GroupTrace&) = delete;

  GroupReport report() const override;
  const FlightRecorder* recorder() const override { return log_ ? &log_->recorder() : nullptr; }

 private:
  const Communicator& group_;
  const std::shared_ptr<const FlightLog> log_;
  const OnDevices on_devices_;
};

}  // namespace altorch::backend
