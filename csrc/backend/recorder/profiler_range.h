// SPDX-License-Identifier: BSD-3-Clause
// What torch's profiler, and NVTX with it, shows of a call: the time that the host needs for it, and what is communicated.
#pragma once

#include <ATen/record_function.h>
#include <c10/util/ThreadLocalDebugInfo.h>

#include <optional>

#include "engine/communicator.h"

namespace altorch::backend {

// Thread rules: begins and ends on one thread.
class ProfilerRange {
 public:
  explicit ProfilerRange(OpKind kind) : range_(at::RecordScope::USER_SCOPE) {
    if (range_.isActive()) range_.before(std::string("al:") + std::string(name_of(kind)));
  }
  // Once it is known what moves; nothing unless somebody profiles. What tools know as "record_param_comms": collective, type,
  // elements, group and its ranks.
  void describe(const Operation& operation, const Communicator& group) {
    if (range_.isActive()) comms_.emplace(operation, group);
  }

 private:
  struct Comms {
    Comms(const Operation& operation, const Communicator& group);
    c10::DebugInfoGuard info;  // read as the range ends
    at::RecordFunction range;
  };

  at::RecordFunction range_;
  std::optional<Comms> comms_;
};

}  // namespace altorch::backend
