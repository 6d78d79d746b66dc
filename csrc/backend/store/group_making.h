// SPDX-License-Identifier: BSD-3-Clause
// A group that is being made among the ranks of a job: whoever aborts the job's group ends this, too.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "base/interrupt.h"
#include "observe/job_watch.h"

namespace altorch::backend {

// Thread rules: any thread.
class GroupMaking {
 public:
  // `watch`: over the job; null: of none, as its first group is.
  explicit GroupMaking(std::shared_ptr<const JobWatch> watch);
  ~GroupMaking();
  GroupMaking(const GroupMaking&) = delete;

  static void end_all(const JobWatch* watch, const std::string& why);

  // As long as it lives, this thread's waits end with the making, unless something else is to end them.
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
