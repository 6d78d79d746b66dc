// SPDX-License-Identifier: BSD-3-Clause
// Bruck's algorithm: a block that has i ranks to go travels along the bits of i, together with all
// others that take the same step: ceil(log2 p) (a + p/2 n b), at the price of packing. For small
// blocks, all of one size.
//
// Slot i of a rank holds the block that has i ranks to go in all. It lies in Input until it is
// first replaced; from then on in the place of Output where it belongs if it is the last one to
// come into this slot, so that no other memory is needed to keep it.
#include <algorithm>
#include <vector>

#include "collectives/cost.h"
#include "collectives/phases/blocks.h"
#include "collectives/schedule_builder.h"

namespace altorch::schedules::all_to_all {
namespace {

Schedule build(const Problem& problem) {
  ScheduleBuilder builder;
  const int rank = problem.rank, size = problem.size;
  const std::int64_t count = problem.count;
  const auto before = [&](int slot) { return Slice{Region::kInput, wrap(rank + slot, size) * count, count}; };
  const auto after = [&](int slot) { return Slice{Region::kOutput, wrap(rank - slot, size) * count, count}; };
  const Slice packed = builder.scratch(size / 2 * count), arrived = builder.scratch(size / 2 * count);

  builder.copy(before(0), after(0));
  std::vector<int> moved;  // slots of the last step, in the order in which they are packed
  const auto unpack = [&] {
    for (std::size_t i = 0; i < moved.size(); ++i) {
      builder.copy(part(arrived, static_cast<std::int64_t>(i) * count, count), after(moved[i]));
    }
  };
  for (int distance = 1; distance < size; distance *= 2) {
    unpack();
    moved.clear();
    for (int slot = distance; slot < size; ++slot) {
      if ((slot & distance) == 0) continue;
      const bool replaced = (slot & (distance - 1)) != 0;
      builder.copy(replaced ? after(slot) : before(slot),
                   part(packed, static_cast<std::int64_t>(moved.size()) * count, count));
      moved.push_back(slot);
    }
    builder.end_round();
    const std::int64_t total = static_cast<std::int64_t>(moved.size()) * count;
    builder.receive(wrap(rank - distance, size), part(arrived, 0, total));
    builder.send(wrap(rank + distance, size), part(packed, 0, total));
    builder.end_round();
  }
  unpack();
  return builder.finish();
}

double cost_of(int p, double n, const CostModel& m) {
  double cost = 0;
  for (int distance = 1; distance < p; distance *= 2) {
    // Blocks whose number has this bit set.
    const int blocks = p / (2 * distance) * distance + std::max(0, p % (2 * distance) - distance);
    cost += m.alpha + blocks * n * m.beta;
  }
  return cost;
}

}  // namespace

extern const Algorithm bruck = {
    .kind = OpKind::kAllToAll,
    .name = "bruck",
    .summary = "blocks travel in company along the bits of their distance; small blocks",
    .cost_formula = "ceil(log2 p) (a + p/2 n b)",
    .even_only = true,
    .cost = cost_of,
    .build = build,
};

}  // namespace altorch::schedules::all_to_all
