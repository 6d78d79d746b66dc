// What `altorch trace` is told of one group.
#pragma once

#include <memory>

#include "engine/communicator.h"
#include "observe/trace/trace_board.h"

namespace altorch::backend {

// Listed from its making to its end, which must come before that of what it was given. Thread rules: any thread asks.
class GroupTrace : public TraceSource {
 public:
  // `log`: of its calls; may be null.
  GroupTrace(const Communicator& group, std::shared_ptr<const FlightLog> log);
  ~GroupTrace() override;
  GroupTrace(const GroupTrace&) = delete;

  GroupReport report() const override;
  const FlightRecorder* recorder() const override { return log_ ? &log_->recorder() : nullptr; }

 private:
  const Communicator& group_;
  const std::shared_ptr<const FlightLog> log_;
};

}  // namespace altorch::backend
