// SPDX-License-Identifier: BSD-3-Clause
// Names the ranks that are missing in an allgather through the store, for error messages.
#pragma once

#include <chrono>
#include <functional>
#include <string>

#include "rendezvous/key_value_store.h"

namespace altorch {

// Each rank sets key_of(its rank) when it comes. All ranks but rank 0 also count themselves under
// key + "/count".
struct AllgatherKeys {
  std::string key;
  std::function<std::string(int)> key_of;
  int rank = 0, size = 0;
};

// "rank 3 has not come" or "ranks 3, 5 have not come", from the keys that are missing. If no key is
// missing, the text says that rank 0 has left. If the store does not answer, it is "some rank has
// not come". All waiting ranks call this when one is missing: one of them reads the keys, and
// writes the result for the others.
std::string absent_ranks(KeyValueStore& store, const AllgatherKeys& keys);

// "8 s", "0.3 s".
std::string in_seconds(std::chrono::milliseconds duration);

}  // namespace altorch
