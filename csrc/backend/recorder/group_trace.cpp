// SPDX-License-Identifier: BSD-3-Clause
#include "backend/recorder/group_trace.h"

#include "backend/recorder/torch_recorder.h"

namespace altorch::backend {

GroupTrace::GroupTrace(const Communicator& group, std::shared_ptr<const FlightLog> log, OnDevices on_devices)
    : group_(group), log_(std::move(log)), on_devices_(std::move(on_devices)) {
  TraceBoard::instance().set_dump(&dump_flight_record);
  TraceBoard::instance().add(*this);
}

GroupTrace::~GroupTrace() { TraceBoard::instance().remove(*this); }

GroupReport GroupTrace::report() const {
  const Membership& membership = group_.membership();
  GroupReport report;
  report.name = membership.name;
  report.key = membership.key;
  report.rank = group_.rank();
  report.global_ranks = membership.global_ranks;
  report.transport = group_.transport();
  report.timeout_ms = membership.timeout.count();
  report.sequence = group_.sequence();
  report.calls = group_.count_calls();
  report.cuda_sequence = group_.sequence(/*device=*/0);
  if (const auto failure = group_.failure()) report.closed = failure->what();
  if (group_.watch()) report.job = job_report(*group_.watch());
  if (log_) report.recorded_as = log_->group();
  report.statistics = group_.statistics().rows();
  report.on_devices = on_devices_();
  return report;
}

}  // namespace altorch::backend
