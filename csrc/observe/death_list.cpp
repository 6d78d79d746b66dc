#include "observe/death_list.h"

#include <algorithm>

namespace altorch {
namespace {

constexpr const char* kCount = "deaths";
constexpr int kMostMisses = 5;  // then who counted it died before he could write it
constexpr std::int64_t kMostAtOnce = 256;

std::string entry_key(std::int64_t number) { return "death/" + std::to_string(number); }

}  // namespace

void DeathList::add(int rank) noexcept {
  try {
    store_->set(entry_key(store_->add(kCount, 1)), std::to_string(rank));
  } catch (const std::exception&) {
  }
}

std::vector<int> DeathList::news() noexcept {
  std::vector<int> ranks;
  try {
    const auto count = store_->try_get(kCount);
    if (!count) return ranks;
    const std::int64_t deaths = std::min<std::int64_t>(std::stoll(*count), heard_ + kMostAtOnce);
    while (heard_ < deaths) {
      const auto rank = store_->try_get(entry_key(heard_ + 1));
      if (!rank && ++missed_ < kMostMisses) return ranks;
      missed_ = 0;
      ++heard_;
      if (rank) ranks.push_back(std::stoi(*rank));
    }
  } catch (const std::exception&) {
  }
  return ranks;
}

}  // namespace altorch
