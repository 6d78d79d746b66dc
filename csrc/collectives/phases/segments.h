// SPDX-License-Identifier: BSD-3-Clause
// A block cut into segments for a pipeline.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>

#include "collectives/schedule_builder.h"

namespace altorch {

class Segments {
 public:
  // Segments of `wish` elements for blocks of up to `largest`; 0: one segment.
  Segments(std::int64_t largest, std::int64_t wish)
      : length_(std::max<std::int64_t>(wish > 0 ? std::min(wish, largest) : largest, 1)),
        number_(std::max<std::int64_t>((largest + length_ - 1) / length_, 1)) {}

  std::int64_t length() const { return length_; }
  // Of the largest block.
  std::int64_t number() const { return number_; }

  // Segment k of a block, if there is a message for it: for the first one even if it is empty, for
  // the others only if they are not. Both ends can follow this rule from the block's count alone.
  std::optional<Slice> cut(const Slice& block, std::int64_t k) const {
    const std::int64_t begin = k * length_;
    if (k > 0 && begin >= block.count) return std::nullopt;
    return part(block, begin, std::min(length_, block.count - begin));
  }

 private:
  std::int64_t length_, number_;
};

}  // namespace altorch
