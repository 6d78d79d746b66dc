#include "backend/meeting_trace.h"

#include <chrono>
#include <cstdlib>

namespace altorch::backend {
namespace {

std::string variable(const char* name) {
  const char* const value = std::getenv(name);
  return value ? value : "";
}

}  // namespace

MeetingTrace::MeetingTrace(const Membership& group, const std::shared_ptr<JobWatch>& watch) : watch_(watch) {
  meeting_.name = group.name;
  meeting_.rank = group.rank;
  meeting_.global_ranks = group.global_ranks;
  meeting_.timeout_ms = group.timeout.count();
  meeting_.meets_at = variable("MASTER_ADDR") + ":" + variable("MASTER_PORT");
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  meeting_.made_since_ns = std::chrono::duration_cast<std::chrono::nanoseconds>(now).count();
  TraceBoard::instance().add(*this);
}

GroupReport MeetingTrace::report() const {
  GroupReport report = meeting_;
  if (watch_) report.job = job_report(*watch_);
  return report;
}

}  // namespace altorch::backend
