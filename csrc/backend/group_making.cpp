#include "backend/group_making.h"

#include <mutex>
#include <set>

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

GroupMaking::GroupMaking(const std::string& group) : group_(group) {
  const std::lock_guard lock(under_way().mutex);
  under_way().all.insert(this);
}

GroupMaking::~GroupMaking() {
  const std::lock_guard lock(under_way().mutex);
  under_way().all.erase(this);
}

void GroupMaking::end_all(const std::string& why) {
  const std::lock_guard lock(under_way().mutex);
  for (const GroupMaking* each : under_way().all)
    each->interrupt_->raise("altorch: group '" + each->group_ + "' was not made: " + why);
}

GroupMaking::Wait::Wait(const GroupMaking& making) {
  if (!Interruptible::is_set()) interruptible_.emplace(making.interrupt_);
}

}  // namespace altorch::backend
