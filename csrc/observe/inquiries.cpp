#include "observe/inquiries.h"

#include <algorithm>
#include <sstream>

namespace altorch {
namespace {

constexpr const char* kCounter = "inquiries";
constexpr std::int64_t kMostAtOnce = 64;  // older ones have long been answered, or nobody can
constexpr std::chrono::milliseconds kEvery{500};

std::string key_of(std::int64_t number) { return "inquiry/" + std::to_string(number); }

}  // namespace

void Inquiries::join(const std::shared_ptr<StallBoard>& board) {
  const std::lock_guard lock(mutex_);
  std::erase_if(boards_, [](const auto& entry) { return entry.second.expired(); });
  boards_[board->group()] = board;
}

void Inquiries::ask(const std::string& group, std::uint64_t sequence, std::uint64_t fingerprint) {
  try {
    const std::int64_t number = store_->add(kCounter, 1) - 1;
    store_->set(key_of(number), std::to_string(sequence) + " " + std::to_string(fingerprint) + " " + group);
  } catch (const std::exception&) {  // the store may be gone with its host
  }
}

void Inquiries::answer() {
  const std::unique_lock lock(mutex_, std::try_to_lock);
  const auto now = std::chrono::steady_clock::now();
  if (!lock || now - last_look_ < kEvery) return;
  last_look_ = now;
  try {
    const auto counter = store_->try_get(kCounter);
    const std::int64_t asked = counter ? std::stoll(*counter) : 0;
    next_ = std::max(next_, asked - kMostAtOnce);
    for (; next_ < asked; ++next_) {
      const auto question = store_->try_get(key_of(next_));
      if (!question) return;  // counted, and not written yet
      std::istringstream stream(*question);
      std::uint64_t sequence = 0, fingerprint = 0;
      std::string group;
      stream >> sequence >> fingerprint >> std::ws;
      std::getline(stream, group);
      const auto found = boards_.find(group);
      if (found == boards_.end()) continue;
      if (const auto board = found->second.lock()) board->answer(sequence, fingerprint);
    }
  } catch (const std::exception&) {
  }
}

}  // namespace altorch
