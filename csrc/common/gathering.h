// The first meeting of a new group's ranks, in a store that may still hold what earlier groups of the same
// name and ranks left there, some of which never met.
//
// Rank 0 writes a challenge, a name that it has just drawn; the others answer under that name, with one of
// their own. Rank 0 collects the answers into one table, in which everybody finds the name that it drew: a
// table without it is an old one. Who answered an old challenge sees another appear, and answers again. No
// rank has to know how often such a group was made before. Thread rules: any thread.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "common/fields.h"
#include "common/key_value_store.h"

namespace altorch {

// Under this key, behind the prefix, a rank reports that it cannot make its part of the group, and why.
inline constexpr const char* kFailedKey = "failed";

struct Gathering {
  std::string prefix;         // for keys of this group alone, in this life; the same on every rank
  std::vector<Fields> words;  // everybody's, by rank
};

// `key` is made of the group's name and its ranks. A fixed number of requests for each rank, besides polling.
// Throws Error: kTimeout, naming the ranks that have not come <purpose>; and what store.check_peers() throws.
Gathering gather(KeyValueStore& store, const std::string& key, int rank, int size,
                 std::chrono::milliseconds timeout, const std::string& purpose, const Fields& word);

}  // namespace altorch
