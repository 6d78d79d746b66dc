// One verdict for all ranks that have made something together, or failed to: all go on with it, or none.
//
// The lowest rank decides for it when everybody has said that he is done; whoever failed, sees another one die or has waited
// long enough decides against it. What the first to decide has written holds for all, whatever they wanted. Thread rules: any
// thread.
#pragma once

#include <chrono>
#include <string>

#include "common/key_value_store.h"

namespace altorch {

// Empty: everybody has made it; else why not, the same on all ranks. `key` is new for every verdict. `obstacle`: why this
// rank has not. Throws Error(kTimeout) when no verdict has come some seconds after the timeout, and what the store throws.
std::string agree_on_verdict(KeyValueStore& store, const std::string& key, int rank, int size,
                             std::chrono::milliseconds timeout, const std::string& obstacle);

}  // namespace altorch
