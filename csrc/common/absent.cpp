#include "common/absent.h"

#include <algorithm>
#include <cstdio>

namespace altorch {
namespace {

constexpr int kMostLooks = 512, kMostNames = 8;

}  // namespace

std::string absent_ranks(KeyValueStore& store, const std::function<std::string(int)>& key_of, int size) {
  std::string names;
  int count = 0;
  try {
    for (int rank = 0; rank < std::min(size, kMostLooks); ++rank) {
      if (store.try_get(key_of(rank))) continue;
      if (count++ < kMostNames) names += (names.empty() ? "" : ", ") + std::to_string(rank);
    }
  } catch (const std::exception&) {  // the store may be what is wrong
  }
  if (count == 0) return "some rank has not come";
  if (count == 1) return "rank " + names + " has not come";
  if (count > kMostNames) names += " and " + std::to_string(count - kMostNames) + " more";
  return "ranks " + names + " have not come";
}

std::string in_seconds(std::chrono::milliseconds duration) {
  char text[32];
  std::snprintf(text, sizeof text, "%g s", static_cast<double>(duration.count()) / 1000);
  return text;
}

}  // namespace altorch
