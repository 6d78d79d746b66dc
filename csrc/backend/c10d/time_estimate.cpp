// SPDX-License-Identifier: BSD-3-Clause
#include "backend/c10d/time_estimate.h"

#include "base/error.h"

namespace altorch::backend {
namespace {

thread_local int guards = 0;

}  // namespace

void TimeEstimate::guard(bool begins) { guards += begins ? 1 : -1; }

void TimeEstimate::start() {
  if (guards == 0) {
    throw Error(
        ErrorKind::kInvalidArgument,
        "start a time estimate with torch.distributed._time_estimator, and look that name up after the "
        "first group was made: altorch's version also ends the estimate after an exception");
  }
  const std::lock_guard lock(mutex_);
  if (thread_.load() != std::thread::id())
    throw Error(ErrorKind::kInvalidArgument, "a time estimate of this group is under way; end that first");
  thread_.store(std::this_thread::get_id());
  seconds_ = 0;
}

float TimeEstimate::end() {
  const std::lock_guard lock(mutex_);
  if (!is_running())
    throw Error(ErrorKind::kInvalidArgument, "this thread has no time estimate under way; start one first");
  thread_.store(std::thread::id());
  return static_cast<float>(seconds_ * 1e6);
}

void TimeEstimate::add(double seconds) {
  const std::lock_guard lock(mutex_);
  seconds_ += seconds;
}

}  // namespace altorch::backend
