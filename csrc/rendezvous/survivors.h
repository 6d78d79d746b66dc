// SPDX-License-Identifier: BSD-3-Clause
// Survivor agreement (as ULFM's agree and shrink): after a failure all live ranks of a group get
// the same list of survivors.
//
// Every live rank announces itself in the store. The lowest rank that is not known to be dead waits
// until each peer has announced itself or is dead, and writes the list. If a peer does neither, the
// first rank whose timeout passes writes the list without it. If no list appears within 2 s (longer
// in jobs of more than 1,024 ranks: calm_pace()), or half of the timeout if that is shorter,
// another rank takes the role of the writer, one at a time. The first list that is written stands,
// so all ranks read the same one. A rank makes a fixed number of requests, besides polling; a
// writer reads one key per live rank if a peer is missing.
// Thread rules: any thread, one query at a time.
#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include "rendezvous/key_value_store.h"

namespace altorch {

struct SurvivorQuery {
  std::string key;  // prefix of the group's queries, the same on all ranks
  int rank = 0, size = 0;
  std::chrono::milliseconds timeout{
      0};  // a live rank that has not announced itself when it passes is left out
  std::function<bool(int)> is_dead = {};  // takes a rank of the group; may ask the store
};

struct Survivors {
  int attempt = 0;         // counts the attempts of this group to make its successor
  std::vector<int> ranks;  // ascending; without this rank if it came too late and its peers have gone on
};

// Blocks for up to four timeouts (two waits). The caller then calls all_succeeded(): until that has
// voided the attempt, another call returns the same list, also if ranks of it have died meanwhile.
// Throws Error: kTimeout if the number of the attempt, or then the list, takes longer than twice
// the timeout; kInternal for malformed data; and what the store throws.
Survivors find_survivors(KeyValueStore& store, const SurvivorQuery& query);

// Whether all survivors have made the next group; the same answer on all of them. `made`: whether
// this rank has. If one of them failed, or died before the decision, all of them drop the group and
// begin the next attempt. Throws as find_survivors().
bool all_succeeded(KeyValueStore& store, const SurvivorQuery& query, const Survivors& left, bool made);

}  // namespace altorch
