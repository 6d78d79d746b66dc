// SPDX-License-Identifier: BSD-3-Clause
#include "backend/c10d/time_estimate.h"

#include "base/error.h"

namespace altorch::backend {

void TimeEstimate::start() {
  const std::lock_guard lock(mutex_);
  if (running_.exchange(true))
    throw Error(ErrorKind::kInvalidArgument, "a time estimate of this group is under way; end it first");
  seconds_ = 0;
}

float TimeEstimate::end() {
  const std::lock_guard lock(mutex_);
  if (!running_.exchange(false))
    throw Error(ErrorKind::kInvalidArgument, "no time estimate of this group is under way; start one first");
  return static_cast<float>(seconds_ * 1e6);
}

void TimeEstimate::add(double seconds) {
  const std::lock_guard lock(mutex_);
  seconds_ += seconds;
}

}  // namespace altorch::backend
