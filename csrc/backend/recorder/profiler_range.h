// SPDX-License-Identifier: BSD-3-Clause
// A call's range in torch's profiler, and in NVTX with it: the time that the host needs for the
// call, and what is communicated. Under a name that altorch serves (altorch.serve), the range is
// what that backend of torch records: an asynchronous event with the call's tensors, one for
// coalesced calls.
#pragma once

#include <ATen/record_function.h>
#include <c10/util/ThreadLocalDebugInfo.h>

#include <optional>

#include "runtime/communicator.h"

namespace altorch::backend {

// Thread rules: begins and ends on one thread.
class ProfilerRange {
 public:
  // `backend`: the name that the program knows the group's backend by. `is_part`: of coalesced
  // calls, which have a range of their own.
  ProfilerRange(const std::string& backend, const char* name, bool is_part = false)
      : backend_(backend), name_(name), is_part_(is_part), range_(at::RecordScope::USER_SCOPE) {
    if (range_.isActive() && !is_served()) range_.before(title());
  }
  // Called once it is known what moves; does nothing unless a profiler is active. Adds the event
  // that tools know as "record_param_comms": collective, type, elements, group and its ranks.
  void describe(const Operation& operation, const Communicator& group, const at::Tensor& tensor) {
    if (!range_.isActive()) return;
    if (!is_part_) list({&tensor, 1});
    comms_.emplace(operation, group);
  }
  // Of a call with several tensors.
  void list(c10::ArrayRef<at::Tensor> tensors) {
    if (!range_.isActive() || !is_served()) return;
    const std::vector<c10::IValue> values(tensors.begin(), tensors.end());
    range_._setAsync();
    range_.before(title(), c10::ArrayRef<const c10::IValue>(values.data(), values.size()));
  }

 private:
  struct Comms {
    Comms(const Operation& operation, const Communicator& group);
    c10::DebugInfoGuard info;  // the range reads it when it ends
    at::RecordFunction range;
  };

  bool is_served() const { return backend_ != "al"; }
  std::string title() const { return backend_ + ":" + name_; }

  const std::string& backend_;
  const char* const name_;
  const bool is_part_;
  at::RecordFunction range_;
  std::optional<Comms> comms_;
};

}  // namespace altorch::backend
