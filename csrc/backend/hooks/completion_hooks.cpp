// SPDX-License-Identifier: BSD-3-Clause
#include "backend/hooks/completion_hooks.h"

#include <string>
#include <utility>
#include <vector>

#include "base/log.h"

namespace altorch::backend {

std::uint64_t CompletionHooks::next_key() {
  static std::atomic<std::uint64_t> last{0};
  return last.fetch_add(1, std::memory_order_relaxed) + 1;
}

void CompletionHooks::add(std::int64_t id, Hook hook) {
  auto kept = std::make_shared<const Hook>(std::move(hook));  // as is the last one, it outlives the lock
  const std::lock_guard lock(mutex_);
  hooks_[id].swap(kept);
  are_there_.store(true);
}

void CompletionHooks::remove(std::int64_t id) {
  std::shared_ptr<const Hook> last;  // outlives the lock: it may belong to Python
  const std::lock_guard lock(mutex_);
  const auto found = hooks_.find(id);
  if (found == hooks_.end()) return;
  last = std::move(found->second);
  hooks_.erase(found);
  are_there_.store(!hooks_.empty());
}

CompletionHooks::Hooks CompletionHooks::take_all() {
  const std::lock_guard lock(mutex_);
  are_there_.store(false);
  return std::exchange(hooks_, {});
}

void CompletionHooks::tell(std::uint64_t key, std::optional<float> milliseconds) const noexcept {
  std::vector<std::shared_ptr<const Hook>> hooks;
  {
    const std::lock_guard lock(mutex_);
    for (const auto& [id, hook] : hooks_) hooks.push_back(hook);
  }
  for (const auto& hook : hooks) {
    try {
      (*hook)(key, milliseconds);
    } catch (const std::exception& error) {
      log(LogLevel::kWarning, std::string("a completion hook failed: ") + error.what());
    } catch (...) {
      log(LogLevel::kWarning, "a completion hook failed");
    }
  }
}

}  // namespace altorch::backend
