// SPDX-License-Identifier: BSD-3-Clause
// A group that is being made among the ranks of a job. Aborting the job's group also ends the
// making.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "base/interrupt.h"
#include "trace/job_watch.h"

namespace altorch::backend {

// Thread rules: any thread.
class GroupMaking {
 public:
  // `watch`: of the job; null for the job's first group, which has none yet.
  explicit GroupMaking(std::shared_ptr<const JobWatch> watch);
  ~GroupMaking();
  GroupMaking(const GroupMaking&) = delete;

  static void end_all(const JobWatch* watch, const std::string& why);

  // While it lives, end_all() also ends the waits of this thread, unless another Interruptible is
  // set.
  class Wait {
   public:
    explicit Wait(const GroupMaking& making);

   private:
    std::optional<Interruptible> interruptible_;
  };

 private:
  const std::shared_ptr<const JobWatch> watch_;
  const std::shared_ptr<Interrupt> interrupt_ = std::make_shared<Interrupt>();
};

}  // namespace altorch::backend
