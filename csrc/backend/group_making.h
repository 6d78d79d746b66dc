// A group that is being made: whoever aborts the job's group ends the makings of others in this process, too.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "common/interrupt.h"

namespace altorch::backend {

// Thread rules: any thread.
class GroupMaking {
 public:
  explicit GroupMaking(const std::string& group);
  ~GroupMaking();
  GroupMaking(const GroupMaking&) = delete;

  static void end_all(const std::string& why);

  // As long as it lives, this thread's waits end with the making, unless something else is to end them.
  class Wait {
   public:
    explicit Wait(const GroupMaking& making);

   private:
    std::optional<Interruptible> interruptible_;
  };

 private:
  const std::string group_;
  const std::shared_ptr<Interrupt> interrupt_ = std::make_shared<Interrupt>();
};

}  // namespace altorch::backend
