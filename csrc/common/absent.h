// Who has not come to a meeting, for the words of an error.
#pragma once

#include <chrono>
#include <functional>
#include <string>

#include "common/key_value_store.h"

namespace altorch {

// "rank 3 has not come" or "ranks 3, 5 have not come", by which of the keys are missing; "some rank has not
// come" when the store does not tell. Looks at a few hundred ranks at most, for all ask when one is missing.
std::string absent_ranks(KeyValueStore& store, const std::function<std::string(int)>& key_of, int size);

// "8 s", "0.3 s".
std::string in_seconds(std::chrono::milliseconds duration);

}  // namespace altorch
