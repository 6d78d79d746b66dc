// SPDX-License-Identifier: BSD-3-Clause
#include "rendezvous/absent.h"

#include <cstdio>

#include "rendezvous/poll_pause.h"

namespace altorch {
namespace {

constexpr int kMaxListedRanks = 8;
constexpr const char* kSomeRank = "some rank has not come";
// The text of a late rank that finds the keys of all ranks, while rank 0, which gathers them, has
// left.
constexpr const char* kGone = "rank 0 has waited no longer for the last ones that came";
constexpr std::chrono::seconds kToLook{5};  // for the rank that reads the keys for all

std::string look(KeyValueStore& store, const AllgatherKeys& keys) {
  std::string names;
  int count = 0;
  bool all_asked = false;
  try {
    for (int rank = 0; rank < keys.size; ++rank) {
      if (store.try_get(keys.key_of(rank))) continue;
      if (count++ < kMaxListedRanks) names += (names.empty() ? "" : ", ") + std::to_string(rank);
    }
    all_asked = true;
  } catch (const std::exception&) {  // the store may be what is wrong
  }
  if (count == 0) return all_asked && keys.rank != 0 ? kGone : kSomeRank;
  if (count == 1) return "rank " + names + " has not come";
  if (count > kMaxListedRanks) names += " and " + std::to_string(count - kMaxListedRanks) + " more";
  return "ranks " + names + " have not come";
}

// One rank reads the keys for all. Its result holds until another rank comes, and counts itself.
std::string look_once_for_all(KeyValueStore& store, const AllgatherKeys& keys) {
  const auto came = store.try_get(keys.key + "/count");
  const std::string key = keys.key + "/absent/" + came.value_or("0");
  if (store.add(key + "/asked", 1) == 1) {
    std::string seen = look(store, keys);
    store.set(key, seen);
    return seen;
  }
  const auto deadline = WaitClock::now() + kToLook;
  PollPause pause(keys.size, deadline);
  while (WaitClock::now() < deadline) {
    if (auto seen = store.try_get(key)) return *std::move(seen);
    pause.pause();
  }
  return kSomeRank;
}

}  // namespace

std::string absent_ranks(KeyValueStore& store, const AllgatherKeys& keys) {
  try {  // rank 0 is not counted, so it might read that it has not come itself
    return keys.rank == 0 ? look(store, keys) : look_once_for_all(store, keys);
  } catch (const std::exception&) {
    return kSomeRank;
  }
}

std::string in_seconds(std::chrono::milliseconds duration) {
  char text[32];
  std::snprintf(text, sizeof text, "%g s", static_cast<double>(duration.count()) / 1000);
  return text;
}

}  // namespace altorch
