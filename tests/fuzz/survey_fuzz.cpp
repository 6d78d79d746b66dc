// Who is left of a group, as the store has it.
#include "common/survey.h"
#include "fuzz/hostile_store.h"

namespace altorch {

FUZZ_TARGET(survey, 300) {
  Survey survey{
      .key = "survey", .rank = input.up_to(3), .size = 4, .patience = std::chrono::milliseconds(10)};
  const int dead = input.up_to(15);
  survey.is_dead = [&](int rank) { return rank != survey.rank && (dead >> rank & 1) != 0; };
  fuzz::HostileStore store(input);
  const Survivors left = find_survivors(store, survey);
  int before = -1;
  for (const int rank : left.ranks) {
    fuzz::require(rank > before && rank < survey.size, "those who are left are ranks of the group, in order");
    before = rank;
  }
  have_all_made_it(store, survey, left, input.up_to(1) == 1);
}

}  // namespace altorch
