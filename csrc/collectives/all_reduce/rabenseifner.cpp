// SPDX-License-Identifier: BSD-3-Clause
// Rabenseifner's algorithm: a reduce-scatter by recursive halving, then an all-gather by recursive
// doubling that walks the same exchanges backwards. Few messages and few bytes: 2 log2(p) a + 2
// (p-1)/p n b + (p-1)/p n g.
//
// Partners come nearest first, with the largest pieces: neighbours are likely on one node. It also
// means that ranks are added in the same order as by recursive_doubling, to the same bits.
#include <algorithm>
#include <vector>

#include "collectives/cost.h"
#include "collectives/phases/blocks.h"
#include "collectives/phases/fold.h"

namespace altorch::schedules::all_reduce {
namespace {

struct Exchange {
  int partner;  // rank
  bool partner_is_lower;
  Slice kept, given;  // halves of the part that both work on
};

std::vector<Exchange> exchanges_of(const Fold& fold, int rank, std::int64_t count) {
  std::vector<Exchange> exchanges;
  if (fold.is_guest(rank)) return exchanges;
  const Blocks blocks = Blocks::balanced(count, fold.members());
  const int member = fold.member_of(rank);
  int first = 0, last = fold.members();
  for (int distance = 1; distance < fold.members(); distance *= 2) {
    const int middle = (first + last) / 2;
    const Slice lower = blocks.range(Region::kOutput, first, middle);
    const Slice upper = blocks.range(Region::kOutput, middle, last);
    const int partner = member ^ distance;
    const bool keep_lower = member < partner;
    exchanges.push_back(
        {fold.rank_of(partner), !keep_lower, keep_lower ? lower : upper, keep_lower ? upper : lower});
    (keep_lower ? last : first) = middle;
  }
  return exchanges;
}

Schedule build(const Problem& problem) {
  ScheduleBuilder builder;
  const Fold fold(problem.size);
  const Slice vector{Region::kOutput, 0, problem.count};
  const std::vector<Exchange> exchanges = exchanges_of(fold, problem.rank, problem.count);
  std::int64_t largest = fold.is_host(problem.rank) ? problem.count : 0;
  for (const Exchange& exchange : exchanges) largest = std::max(largest, exchange.kept.count);
  const Slice arrived = builder.scratch(largest);

  fold_vector(builder, fold, problem.rank, vector, arrived);
  for (const Exchange& exchange : exchanges) {
    const Slice addend = part(arrived, 0, exchange.kept.count);
    builder.receive(exchange.partner, addend);
    builder.send(exchange.partner, exchange.given);
    builder.end_round();
    if (exchange.partner_is_lower) {
      builder.reduce(addend, exchange.kept, exchange.kept);
    } else {
      builder.reduce(exchange.kept, addend, exchange.kept);
    }
    builder.end_round();
  }
  for (auto exchange = exchanges.rbegin(); exchange != exchanges.rend(); ++exchange) {
    builder.receive(exchange->partner, exchange->given);
    builder.send(exchange->partner, exchange->kept);
    builder.end_round();
  }
  unfold_vector(builder, fold, problem.rank, vector);
  return builder.finish();
}

double cost_of(int p, double n, const CostModel& m) {
  const double members = 1 << cost::floor_log2(p);
  const double share = (members - 1) / members * n;
  return 2 * cost::floor_log2(p) * m.alpha + share * (2 * m.beta + m.gamma) + cost::folding(p, n, m);
}

}  // namespace

extern const Algorithm rabenseifner = {
    .kind = OpKind::kAllReduce,
    .name = "rabenseifner",
    .summary = "recursive halving, then recursive doubling; medium vectors",
    .cost_formula = "2 log2(p) a + 2 (p-1)/p n b + (p-1)/p n g",
    .cost = cost_of,
    .build = build,
};

}  // namespace altorch::schedules::all_reduce
