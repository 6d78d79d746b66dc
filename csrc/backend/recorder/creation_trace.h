// SPDX-License-Identifier: BSD-3-Clause
// What `altorch trace` shows of a group that is being made: its ranks have not found each other
// yet, or open their transport.
#pragma once

#include <memory>

#include "rendezvous/membership.h"
#include "trace/job_watch.h"
#include "trace/trace_board.h"

namespace altorch::backend {

// Listed while it lives. Thread rules: any thread asks.
class CreationTrace : public TraceSource {
 public:
  // `watch`: over the job that the group is made in; may be null.
  CreationTrace(const Membership& group, const std::shared_ptr<JobWatch>& watch);
  ~CreationTrace() override { TraceBoard::instance().remove(*this); }
  CreationTrace(const CreationTrace&) = delete;

  GroupReport report() const override;
  const FlightRecorder* recorder() const override { return nullptr; }

 private:
  GroupReport report_;
  const std::shared_ptr<JobWatch> watch_;
};

}  // namespace altorch::backend
