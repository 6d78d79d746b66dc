// SPDX-License-Identifier: BSD-3-Clause
#include "backend/recorder/creation_trace.h"

#include <chrono>
#include <cstdlib>

namespace altorch::backend {
namespace {

std::string variable(const char* name) {
  const char* const value = std::getenv(name);
  return value ? value : "";
}

}  // namespace

CreationTrace::CreationTrace(const Membership& group, const std::shared_ptr<JobWatch>& watch)
    : watch_(watch) {
  report_.name = group.name;
  report_.rank = group.rank;
  report_.global_ranks = group.global_ranks;
  report_.timeout_ms = group.timeout.count();
  report_.meets_at = variable("MASTER_ADDR") + ":" + variable("MASTER_PORT");
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  report_.made_since_ns = std::chrono::duration_cast<std::chrono::nanoseconds>(now).count();
  TraceBoard::instance().add(*this);
}

GroupReport CreationTrace::report() const {
  GroupReport report = report_;
  if (watch_) report.job = job_report(*watch_);
  return report;
}

}  // namespace altorch::backend
