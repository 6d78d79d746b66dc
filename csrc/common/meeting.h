// All ranks of a group come together in the store, before something that would wait without end for one that
// is missing.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "common/key_value_store.h"

namespace altorch {

// Returns when all have come, with the word that each has brought. Throws Error that names the first rank
// that has not: "rank 3 has not come <purpose>: ...". `key` is new for every meeting. Thread rules: any
// thread.
std::vector<std::string> meet(KeyValueStore& store, const std::string& key, int rank, int size,
                              std::chrono::milliseconds timeout, const std::string& purpose,
                              const std::string& word = "1");

}  // namespace altorch
