// Who has not come to a meeting, for the words of an error.
#pragma once

#include <chrono>
#include <functional>
#include <string>

#include "common/key_value_store.h"

namespace altorch {

// Where each rank that comes leaves a key, and all but rank 0 count themselves under key + "/count".
struct Meeting {
  std::string key;
  std::function<std::string(int)> key_of;
  int rank = 0, size = 0;
};

// "rank 3 has not come" or "ranks 3, 5 have not come", by which of the keys are missing; that rank 0 has gone, when none is; "some
// rank has not come" when the store does not tell. All ask when one is missing: one of them looks, and tells the others.
std::string absent_ranks(KeyValueStore& store, const Meeting& meeting);

// "8 s", "0.3 s".
std::string in_seconds(std::chrono::milliseconds duration);

}  // namespace altorch
