// SPDX-License-Identifier: BSD-3-Clause
#include "collectives/hierarchical/planner.h"

#include <algorithm>

namespace altorch::hierarchical {
namespace {

// Blocks of one size are known by it.
void set_counts(std::vector<std::int64_t> counts, std::vector<std::int64_t>& kept,
                std::span<const std::int64_t>& span) {
  if (std::adjacent_find(counts.begin(), counts.end(), std::not_equal_to<>()) == counts.end()) return;
  kept = std::move(counts);
  span = kept;
}

// Without what moves nothing; what goes on where the last one ended is one with it.
std::vector<Move> joined(const std::vector<Move>& moves, DType dtype) {
  std::vector<Move> all;
  for (const Move& each : moves) {
    if (each.count == 0 || each.from == each.to) continue;
    if (!all.empty() && at(all.back().from, all.back().count, dtype) == each.from &&
        at(all.back().to, all.back().count, dtype) == each.to) {
      all.back().count += each.count;
    } else {
      all.push_back(each);
    }
  }
  return all;
}

}  // namespace

Stage* Planner::on_node(const Call& sub_call) {
  ++number_;
  if (layout.is_alone()) return nullptr;
  stages.push_back({.number = number_, .call = sub_call, .own = layout.own_place()});
  return &stages.back();
}

Stage* Planner::among(std::vector<int> members, const Call& sub_call) {
  ++number_;
  const auto own = std::find(members.begin(), members.end(), layout.rank());
  if (own == members.end()) return nullptr;
  const int place = static_cast<int>(own - members.begin());
  stages.push_back({.number = number_, .call = sub_call, .members = std::move(members), .own = place});
  return &stages.back();
}

void Planner::move(std::vector<Move> moves) {
  moves = joined(moves, call.dtype);
  if (!moves.empty())
    stages.push_back({.number = number_, .own = layout.own_place(), .moves = std::move(moves)});
}

const void* Planner::side_by_side(std::vector<Move> moves, const void* to) {
  const std::vector<Move> few = joined(moves, call.dtype);
  if (few.size() == 1) return few.front().from;
  move(std::move(moves));
  return to;
}

void Planner::give(Stage* stage, std::vector<std::int64_t> input_counts,
                   std::vector<std::int64_t> output_counts) {
  if (!stage) return;
  const auto& of_own = input_counts.empty() ? output_counts : input_counts;
  stage->call.count = of_own[static_cast<std::size_t>(stage->own)];
  set_counts(std::move(input_counts), stage->input_counts, stage->call.input_counts);
  set_counts(std::move(output_counts), stage->output_counts, stage->call.output_counts);
}

}  // namespace altorch::hierarchical
