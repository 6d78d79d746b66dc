// SPDX-License-Identifier: BSD-3-Clause
// Random collectives and what comes of them, computed from the shape alone: every executor is held
// to it.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "base/operation.h"
#include "base/shape.h"

namespace altorch::shapes {

// One call of all ranks. `counts`: of the blocks by rank, of all_to_all from rank i to rank j at i
// * size + j; empty: even.
struct Case {
  OpKind kind;
  int size, root;
  std::int64_t count;
  std::vector<std::int64_t> counts;
  bool only_root_knows;  // of a gather or scatter

  std::int64_t block(int from, int to) const {
    if (counts.empty()) return count;
    return counts[static_cast<std::size_t>(exchanges(kind) ? from * size + to : from)];
  }
  std::string text() const {
    std::string said = std::string(name_of(kind)) + " of " + std::to_string(count) + " among " +
                       std::to_string(size) + ", root " + std::to_string(root) +
                       (only_root_knows ? ", only the root knows" : "") + (counts.empty() ? "" : ", blocks");
    for (const std::int64_t each : counts) said += " " + std::to_string(each);
    return said;
  }
};

// The same for the same seed, so that ranks draw alike. `most`: elements of a vector or block.
// `scans`: also scan and exscan.
inline Case draw(std::mt19937& random, int size, std::int64_t most, bool scans) {
  const auto upto = [&](std::int64_t limit) {
    return static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(limit + 1));
  };
  const auto length = [&] { return upto(2) == 0 ? upto(3) : upto(most); };
  constexpr OpKind kKinds[] = {
      OpKind::kAllReduce, OpKind::kReduce, OpKind::kBroadcast, OpKind::kAllGather, OpKind::kReduceScatter,
      OpKind::kAllToAll,  OpKind::kGather, OpKind::kScatter,   OpKind::kScan,      OpKind::kExscan};
  Case made{kKinds[upto(scans ? 9 : 7)], size, 0, length(), {}, false};
  if (is_rooted(made.kind)) made.root = static_cast<int>(upto(size - 1));
  if (!has_blocks(made.kind) || upto(1) == 0) return made;
  for (int i = 0; i < (exchanges(made.kind) ? size * size : size); ++i) made.counts.push_back(length());
  made.only_root_knows = is_rooted(made.kind) && upto(1) == 0;
  return made;
}

// What one rank passes to an executor, and its memory. Its output is filled before with a number
// that no call makes.
class RankCase {
 public:
  static constexpr std::int64_t kBefore = -77;

  RankCase(const Case& all, int rank) : rank_(rank), size_(all.size) {
    operation.kind = all.kind;
    operation.dtype = DType::kInt64;
    operation.root = all.root;
    operation.count = all.block(rank, rank);
    operation.timeout = std::chrono::seconds(60);
    const bool knows = !all.only_root_knows || rank == all.root;
    for (int peer = 0; peer < all.size && !all.counts.empty() && knows; ++peer) {
      input_counts_.push_back(all.block(exchanges(all.kind) ? rank : peer, peer));
      output_counts_.push_back(all.block(peer, rank));
    }
    if (kOpKinds[all.kind].input == Holds::kAllBlocks) operation.input_counts = input_counts_;
    if (kOpKinds[all.kind].output == Holds::kAllBlocks) operation.output_counts = output_counts_;
    const Elements elements = elements_of(operation, rank, all.size);
    for (std::int64_t i = 0; i < elements.input.value_or(0); ++i) input_.push_back(number(rank, i));
    output_.assign(static_cast<std::size_t>(elements.output.value_or(0)) + 1, kBefore);
    // A vector is reduced, and sent by its root, in the buffer that receives it.
    if (kOpKinds[all.kind].output == Holds::kVector && has_input(operation, rank))
      output_.assign(input_.begin(), input_.end()), output_.push_back(kBefore);
    operation.input = all.kind == OpKind::kBroadcast                ? nullptr
                      : kOpKinds[all.kind].output == Holds::kVector ? output_.data()
                      : elements.input                              ? input_.data()
                                                                    : nullptr;
    operation.output = elements.output ? output_.data() : nullptr;
  }
  RankCase(const RankCase&) = delete;

  static std::int64_t number(int rank, std::int64_t at) { return 1000 * (at + 1) + rank; }

  // What the output has to hold, by the shape of this rank's call and of its peers'.
  std::vector<std::int64_t> expected(const Case& all) const {
    std::vector<std::int64_t> result(output_.size(), kBefore);
    std::vector<int> written(output_.size(), 0);
    for (int peer = 0; peer < size_; ++peer) {
      const RankCase other(all, peer);
      const auto from = part_for(other.operation, peer, rank_), to = part_from(operation, rank_, peer);
      EXPECT_EQ(from.has_value(), to.has_value()) << all.text();
      if (!from || !to) continue;
      EXPECT_EQ(from->count, to->count) << all.text();
      EXPECT_EQ(count_for(other.operation, peer, rank_), from->count);
      EXPECT_EQ(count_from(operation, rank_, peer), to->count);
      for (std::int64_t i = 0; i < to->count; ++i) {
        const auto at = static_cast<std::size_t>(to->begin + i);
        const std::int64_t sent = number(peer, from->begin + i);
        result[at] = written[at]++ > 0 ? result[at] + sent : sent;
      }
    }
    // The result is what it writes, and nothing else.
    const bool root_of_broadcast = all.kind == OpKind::kBroadcast && rank_ == all.root;
    const std::int64_t own = root_of_broadcast ? operation.count : result_count(operation, rank_, size_);
    for (std::size_t i = 0; i < written.size(); ++i)
      EXPECT_EQ(written[i] > 0, static_cast<std::int64_t>(i) < own) << all.text();
    return result;
  }
  // Whether the output is defined here: that of a reduce is, at its root.
  bool is_defined() const { return has_output(operation, rank_); }
  const std::vector<std::int64_t>& output() const { return output_; }

  Operation operation;

 private:
  const int rank_, size_;
  std::vector<std::int64_t> input_counts_, output_counts_, input_, output_;
};

// `run(rank, operation)` carries a call; called on a thread per rank with the same `seed`.
template <typename Run>
void hold_to_the_shape(unsigned seed, int cases, int rank, int size, std::int64_t most, bool scans,
                       const Run& run) {
  std::mt19937 random(seed);
  for (int i = 0; i < cases; ++i) {
    const Case each = draw(random, size, most, scans);
    RankCase mine(each, rank);
    run(mine.operation);
    if (mine.is_defined()) {
      ASSERT_EQ(mine.output(), mine.expected(each)) << each.text() << ", rank " << rank;
    }
  }
}

}  // namespace altorch::shapes
