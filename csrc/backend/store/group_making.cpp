// SPDX-License-Identifier: BSD-3-Clause
#include "backend/store/group_making.h"

#include <mutex>
#include <set>
#include <utility>

namespace altorch::backend {
namespace {

struct UnderWay {
  std::mutex mutex;
  std::set<const GroupMaking*> all;
};

UnderWay& under_way() {
  static auto* instance = new UnderWay();
  return *instance;
}

}  // namespace

GroupMaking::GroupMaking(std::shared_ptr<const JobWatch> watch) : watch_(std::move(watch)) {
  const std::lock_guard lock(under_way().mutex);
  under_way().all.insert(this);
}

GroupMaking::~GroupMaking() {
  const std::lock_guard lock(under_way().mutex);
  under_way().all.erase(this);
}

void GroupMaking::end_all(const JobWatch* watch, const std::string& why) {
  const std::lock_guard lock(under_way().mutex);
  for (const GroupMaking* each : under_way().all) {
    if (watch && each->watch_.get() == watch) each->interrupt_->raise(why);
  }
}

GroupMaking::Wait::Wait(const GroupMaking& making) {
  if (!Interruptible::is_set()) interruptible_.emplace(making.interrupt_);
}

}  // namespace altorch::backend
