// SPDX-License-Identifier: BSD-3-Clause
#include "health/death_list.h"

#include <algorithm>
#include <chrono>
#include <thread>

#include "base/number.h"

namespace altorch {
namespace {

constexpr const char* kCount = "deaths";
constexpr int kMostMisses = 5;  // then the rank that counted it died before it wrote the entry
constexpr std::int64_t kMaxDeathsPerPoll = 256;
// All neighbours of a dead process notice its death at once. Two of them report it, because the
// first one may die while it does.
constexpr std::int64_t kTellers = 2;

// A process that ends closes its latest connections first: those of liveness a moment before that
// of a store which it hosts. A request in between would be lost, and c10d would print a trace at
// the healthy end of the job.
constexpr std::chrono::milliseconds kAllClosed{200};

std::string entry_key(std::int64_t number) { return "death/" + std::to_string(number); }

}  // namespace

void DeathList::add(int rank, Clock::time_point noticed) noexcept {
  try {
    if (is_gone_) return;
    std::this_thread::sleep_until(noticed + kAllClosed);
    if ((is_gone_ = !store_->is_hosted())) return;
    if (store_->add("death/of/" + std::to_string(rank), 1) > kTellers) return;
    store_->set(entry_key(store_->add(kCount, 1)), std::to_string(rank));
  } catch (const std::exception&) {
  }
}

std::vector<int> DeathList::take_new() noexcept {
  std::vector<int> ranks;
  try {
    const auto count = store_->try_get(kCount);
    const std::int64_t told = count ? to_number<std::int64_t>(*count).value_or(0) : 0;
    if (told <= heard_) return ranks;
    std::vector<std::string> keys;
    for (std::int64_t entry = heard_ + 1; entry <= std::min(told, heard_ + kMaxDeathsPerPoll); ++entry)
      keys.push_back(entry_key(entry));
    std::vector<std::optional<std::string>> entries;
    if (const auto all = store_->multi_get(keys)) {
      entries.assign(all->begin(), all->end());
    } else if (++missed_ >= kMostMisses) {
      for (const std::string& key : keys) entries.push_back(store_->try_get(key));
    }
    if (entries.empty()) return ranks;
    missed_ = 0;
    heard_ += static_cast<std::int64_t>(entries.size());
    for (const auto& entry : entries) {
      if (const auto rank = entry ? to_number<int>(*entry) : std::nullopt) ranks.push_back(*rank);
    }
  } catch (const std::exception&) {
  }
  return ranks;
}

}  // namespace altorch
