// What `altorch trace` is told of a group whose ranks have not met yet, or make what carries them.
#pragma once

#include <memory>

#include "common/membership.h"
#include "observe/job_watch.h"
#include "observe/trace/trace_board.h"

namespace altorch::backend {

// Listed while it lives. Thread rules: any thread asks.
class MeetingTrace : public TraceSource {
 public:
  // `watch`: over the job that the group is made in; may be null.
  MeetingTrace(const Membership& group, const std::shared_ptr<JobWatch>& watch);
  ~MeetingTrace() override { TraceBoard::instance().remove(*this); }
  MeetingTrace(const MeetingTrace&) = delete;

  GroupReport report() const override;
  const FlightRecorder* recorder() const override { return nullptr; }

 private:
  GroupReport meeting_;
  const std::shared_ptr<JobWatch> watch_;
};

}  // namespace altorch::backend
