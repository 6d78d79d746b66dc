// SPDX-License-Identifier: BSD-3-Clause
#include "health/desync_queries.h"

#include <algorithm>
#include <sstream>

#include "base/number.h"

namespace altorch {
namespace {

constexpr const char* kCounter = "queries";
constexpr std::int64_t kMaxOpenQueries = 64;  // older ones have been answered, or no rank can answer them
constexpr int kMaxLooks = 5;                  // looks

std::string key_of(std::int64_t number) { return "query/" + std::to_string(number); }

}  // namespace

void DesyncQueries::join(const std::shared_ptr<DesyncBoard>& board) {
  const std::lock_guard lock(mutex_);
  std::erase_if(boards_, [](const auto& entry) { return entry.second.expired(); });
  boards_[board->group()] = board;
}

void DesyncQueries::ask(const std::string& group, const CallNote& note) {
  try {
    const std::int64_t number = store_->add(kCounter, 1) - 1;
    store_->set(key_of(number), std::to_string(note.sequence) + " " + std::to_string(note.fingerprint) + " " +
                                    std::to_string(note.history) + (note.on_gpu ? " 1 " : " 0 ") + group);
  } catch (const std::exception&) {  // the store may be gone with its host
  }
}

void DesyncQueries::answer() {
  const std::unique_lock lock(mutex_, std::try_to_lock);
  const auto now = WaitClock::now();
  if (!lock || now - last_look_ < pace_) return;
  last_look_ = now;
  try {
    const auto counter = store_->try_get(kCounter);
    const std::int64_t asked =
        std::max<std::int64_t>(0, counter ? to_number<std::int64_t>(*counter).value_or(0) : 0);
    next_ = std::max(next_, asked - kMaxOpenQueries);
    for (; next_ < asked; ++next_) {
      const auto question = store_->try_get(key_of(next_));
      if (!question && ++unwritten_ < kMaxLooks) return;  // counted, and not written yet
      unwritten_ = 0;
      if (!question) continue;  // the rank that asked died before it wrote the question
      std::istringstream stream(*question);
      CallNote note;
      std::string group;
      stream >> note.sequence >> note.fingerprint >> note.history >> note.on_gpu >> std::ws;
      if (!std::getline(stream, group)) continue;
      const auto found = boards_.find(group);
      if (found == boards_.end()) continue;
      if (const auto board = found->second.lock()) board->answer(note);
    }
  } catch (const std::exception&) {
  }
}

}  // namespace altorch
