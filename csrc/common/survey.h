// Who of a group is left, asked through the store after something went wrong: every rank that can go on says so, and all
// of them get the same list.
//
// The lowest rank that is not known to be dead waits until each of the others has come or is dead, and writes the list down;
// should one not come, the first whose patience ends does so. Who dies over that is followed by another, in a new round. A
// rank makes a fixed number of requests, besides polling. Thread rules: any thread, one survey at a time.
#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include "common/key_value_store.h"

namespace altorch {

struct Survey {
  std::string key;  // of this group's surveys, the same on all ranks
  int rank = 0, size = 0;
  std::chrono::milliseconds patience{0};  // with a rank that lives and does not come; then it is left out
  std::function<bool(int)> is_dead = {};  // a rank of the group; may ask the store
};

struct Survivors {
  int attempt = 0;  // to go on, of all that this group's ranks have made
  std::vector<int>
      ranks;  // that are left, in order; without this one: the others have gone on, and it came too late
};

// Throws Error: kTimeout when the list has not come within twice the patience, and what the store throws.
Survivors find_survivors(KeyValueStore& store, const Survey& survey);

// Each of them has then tried to make what comes next. Whether all have, one verdict for all of them: should one fail, or
// die before the verdict, nobody goes on with what was made, and the next attempt begins. Throws as above.
bool have_all_made_it(KeyValueStore& store, const Survey& survey, const Survivors& left, bool made);

}  // namespace altorch
