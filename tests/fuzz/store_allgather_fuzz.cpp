// SPDX-License-Identifier: BSD-3-Clause
// The allgathers of a group's ranks through the store, and the settings that they compare there.
#include "fuzz/hostile_store.h"
#include "rendezvous/agreement.h"
#include "rendezvous/first_allgather.h"
#include "rendezvous/store_allgather.h"

namespace altorch {
namespace {

constexpr std::chrono::milliseconds kPatience{1000};
constexpr int kSize = 3;

void allgather_and_compare(KeyValueStore& store, int rank) {
  const FirstAllgather met =
      first_allgather(store, "key", rank, kSize, kPatience, "to be fuzzed", settings_to_agree_on());
  fuzz::require(met.infos.size() == kSize, "there is a text of each rank");
  constexpr int kNames[kSize] = {0, 1, 2};
  disagreement(met.infos, kNames);
}

}  // namespace

FUZZ_TARGET(store_allgather, 300) {
  const int kind = input.up_to(3), rank = input.up_to(kSize - 1);
  fuzz::HostileStore store(input);
  switch (kind) {
    case 0:
      fuzz::require(store_allgather(store, "key", rank, kSize, kPatience, "to be fuzzed").size() == kSize,
                    "there is a text of each rank");
      break;
    case 1:
      first_unsupported_reason(store, "key", rank, kSize, kPatience, "to be fuzzed", "");
      break;
    case 2:
      leave_in_turn(store, "key", rank, kSize, std::chrono::milliseconds(5));
      break;
    default:
      allgather_and_compare(store, rank);
  }
}

}  // namespace altorch
