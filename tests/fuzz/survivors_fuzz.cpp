// SPDX-License-Identifier: BSD-3-Clause
// Who is left of a group, as the store has it.
#include "fuzz/hostile_store.h"
#include "rendezvous/survivors.h"

namespace altorch {

FUZZ_TARGET(survivors, 300) {
  SurvivorQuery query{
      .key = "survivors", .rank = input.up_to(3), .size = 4, .timeout = std::chrono::milliseconds(10)};
  const int dead = input.up_to(15);
  query.is_dead = [&](int rank) { return rank != query.rank && (dead >> rank & 1) != 0; };
  fuzz::HostileStore store(input);
  const Survivors left = find_survivors(store, query);
  int before = -1;
  for (const int rank : left.ranks) {
    fuzz::require(rank > before && rank < query.size, "those who are left are ranks of the group, in order");
    before = rank;
  }
  all_succeeded(store, query, left, input.up_to(1) == 1);
}

}  // namespace altorch
