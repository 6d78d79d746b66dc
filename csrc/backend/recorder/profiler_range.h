// SPDX-License-Identifier: BSD-3-Clause
// A call's range in torch's profiler, and in NVTX with it: the time that the host needs for the
// call, and what is communicated.
#pragma once

#include <ATen/record_function.h>
#include <c10/util/ThreadLocalDebugInfo.h>

#include <optional>

#include "runtime/communicator.h"

namespace altorch::backend {

// Thread rules: begins and ends on one thread.
class ProfilerRange {
 public:
  // `backend`: the name that the program knows the group's backend by.
  ProfilerRange(const std::string& backend, OpKind kind) : range_(at::RecordScope::USER_SCOPE) {
    if (range_.isActive()) range_.before(backend + ":" + std::string(name_of(kind)));
  }
  // Called once it is known what moves; does nothing unless a profiler is active. Adds the event
  // that tools know as "record_param_comms": collective, type, elements, group and its ranks.
  void describe(const Operation& operation, const Communicator& group) {
    if (range_.isActive()) comms_.emplace(operation, group);
  }

 private:
  struct Comms {
    Comms(const Operation& operation, const Communicator& group);
    c10::DebugInfoGuard info;  // the range reads it when it ends
    at::RecordFunction range;
  };

  at::RecordFunction range_;
  std::optional<Comms> comms_;
};

}  // namespace altorch::backend
