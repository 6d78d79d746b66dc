// SPDX-License-Identifier: BSD-3-Clause
// A vector cut into one block per rank, block after block in rank order.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "collectives/schedule.h"

namespace altorch {

class Blocks {
 public:
  // Per-rank counts or, where they are empty, `even` elements for each.
  Blocks(std::span<const std::int64_t> counts, std::int64_t even, int parts) : Blocks(parts) {
    for (int i = 0; i < parts; ++i) append(block_count(counts, even, i));
  }
  // `total` elements in parts that differ by one at most, the longer ones first.
  static Blocks balanced(std::int64_t total, int parts) {
    Blocks blocks(parts);
    for (int i = 0; i < parts; ++i) blocks.append(total / parts + (i < total % parts ? 1 : 0));
    return blocks;
  }

  std::int64_t count(int i) const { return offset(i + 1) - offset(i); }
  std::int64_t offset(int i) const { return offsets_[static_cast<std::size_t>(i)]; }
  std::int64_t largest() const { return largest_; }

  Slice block(Region region, int i) const { return range(region, i, i + 1); }
  // Blocks first..last-1, which lie side by side.
  Slice range(Region region, int first, int last) const {
    return {region, offset(first), offset(last) - offset(first)};
  }

 private:
  explicit Blocks(int parts) {
    offsets_.reserve(static_cast<std::size_t>(parts) + 1);
    offsets_.push_back(0);
  }
  void append(std::int64_t count) {
    offsets_.push_back(offsets_.back() + count);
    largest_ = std::max(largest_, count);
  }

  std::vector<std::int64_t> offsets_;
  std::int64_t largest_ = 0;
};

// i modulo p, for any sign of i.
constexpr int wrap(int i, int p) { return ((i % p) + p) % p; }

}  // namespace altorch
