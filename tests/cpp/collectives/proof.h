// SPDX-License-Identifier: BSD-3-Clause
// prove(kind): every algorithm of an operation, for 1 to 64 ranks, with even and uneven counts, in
// place and not, whole and in segments, under deliveries that wait, overtake and hurry.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "base/shape.h"
#include "collectives/static_check.h"
#include "collectives/virtual_ranks.h"

namespace altorch::proof {

inline constexpr int kLargestSize = 64;

// Deliveries, by turns: all messages wait for their receive; all are copied at once and overtake;
// both.
inline LoopbackOptions delivery(std::uint64_t seed) {
  LoopbackOptions options;
  options.seed = seed;
  options.eager_bytes = seed % 3 == 0 ? 0 : seed % 3 == 1 ? 1 << 20 : 40;
  options.longest_delay = seed % 2 == 0 ? 0 : seed % 7;
  return options;
}

// What is wrong with a call, or "".
inline std::string prove_call(const Call& call) {
  VirtualRanks<std::int64_t> ranks(call);
  std::string problem = check_statically(ranks.schedules(), ranks.layouts());
  if (problem.empty()) problem = ranks.run();
  if (problem.empty()) {
    problem = ranks.check<std::int64_t>([](std::int64_t got, std::int64_t wanted) { return got == wanted; });
  }
  return problem.empty() ? "" : problem + ", in " + call.describe();
}

// Some of the vector lengths or block counts of interest; all of them for few ranks.
inline std::vector<std::int64_t> counts_for(OpKind kind, int p, std::mt19937_64& random) {
  if (kind == OpKind::kBarrier) return {0};
  const bool whole = !has_blocks(kind);
  std::set<std::int64_t> all = {0, 1, 2, 3, 17};
  if (whole) all.insert({p - 1, p, p + 1, 2 * p + 5, 61});
  if (!whole) all.insert({5, 8});
  std::vector<std::int64_t> counts(all.begin(), all.end());
  if (p > 12) {
    std::shuffle(counts.begin(), counts.end(), random);
    counts.resize(3);
  }
  return counts;
}

inline std::vector<std::int64_t> uneven_counts(std::size_t n, std::mt19937_64& random) {
  std::vector<std::int64_t> counts(n);
  for (auto& count : counts) count = random() % 3 == 0 ? 0 : static_cast<std::int64_t>(random() % 9);
  return counts;
}

inline std::vector<Call> calls_for(const Algorithm& algorithm, int p, std::mt19937_64& random) {
  std::vector<Call> calls;
  const OpKind kind = algorithm.kind;
  const auto any_root = [&] {
    return is_rooted(kind) ? static_cast<int>(random() % static_cast<unsigned>(p)) : 0;
  };
  const auto add = [&](Call call) {
    call.algorithm = &algorithm;
    call.size = p;
    call.in_place = !exchanges(kind) && random() % 2 == 0;
    call.delivery = delivery(random() % 1000);
    calls.push_back(call);
  };
  for (const auto count : counts_for(kind, p, random)) {
    add({.root = 0, .count = count});
    if (is_rooted(kind)) add({.root = any_root(), .count = count});
    if (algorithm.pipelined) add({.count = count, .segment = static_cast<std::int64_t>(1 + random() % 7)});
  }
  if (has_blocks(kind) && !algorithm.even_only) {
    const auto n = static_cast<std::size_t>(exchanges(kind) ? p * p : p);
    for (const bool only_root_knows : {false, true}) {
      add({.root = any_root(),
           .counts = uneven_counts(n, random),
           .only_root_knows = is_rooted(kind) && only_root_knows,
           .segment = algorithm.pipelined ? static_cast<std::int64_t>(random() % 4) : 0});
    }
  }
  return calls;
}

inline void prove(const Algorithm& algorithm) {
  for (int p = 1; p <= kLargestSize; ++p) {
    std::mt19937_64 random(static_cast<std::uint64_t>(p));
    for (const Call& call : calls_for(algorithm, p, random)) ASSERT_EQ(prove_call(call), "");
  }
}

inline void prove(OpKind kind) {
  int proved = 0;
  for (const Algorithm* algorithm : algorithms()) {
    if (algorithm->kind != kind) continue;
    prove(*algorithm);
    ++proved;
  }
  EXPECT_GT(proved, 0) << "no algorithm for " << name_of(kind);
}

// float32 sums: close to the sums in float64, and the same from one delivery to another.
inline void prove_floats(OpKind kind, std::vector<int> sizes) {
  for (const Algorithm* each : algorithms()) {
    const Algorithm& algorithm = *each;
    if (algorithm.kind != kind) continue;
    for (const int p : sizes) {
      for (const std::int64_t segment : {0, 5}) {
        Call call{.algorithm = &algorithm, .size = p, .root = p / 2, .count = 37, .segment = segment};
        call.delivery.seed = 11;
        VirtualRanks<float> first(call);
        ASSERT_EQ(first.run(), "") << call.describe();
        const auto close = [p](float got, double wanted) { return std::abs(got - wanted) < 1e-7 * p * p; };
        ASSERT_EQ(first.check<double>(close), "") << call.describe();
        call.delivery.eager_bytes = 0;
        call.delivery.longest_delay = 5;
        VirtualRanks<float> second(call);
        ASSERT_EQ(second.run(), "") << call.describe();
        for (int rank = 0; rank < p; ++rank) {
          const auto a = first.output(rank), b = second.output(rank);
          ASSERT_EQ(std::memcmp(a.data(), b.data(), a.size_bytes()), 0)
              << "rank " << rank << " " << call.describe();
        }
      }
    }
  }
}

}  // namespace altorch::proof
