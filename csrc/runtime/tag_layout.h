// SPDX-License-Identifier: BSD-3-Clause
// The tags of a channel by their users: users' messages have the lowest quarter, windows follow,
// and the engine's collectives have the upper half.
#pragma once

#include <bit>
#include <cstdint>

namespace altorch {

struct TagLayout {
  // `max_tag`: the channel's.
  explicit TagLayout(std::int64_t max_tag)
      : engine_bits(std::bit_width(static_cast<std::uint64_t>(max_tag) + 1) - 2) {}

  // The engine's tags are the numbers of this many bits, with first_engine() added.
  int engine_bits;
  std::int64_t first_engine() const { return std::int64_t{1} << engine_bits; }
  std::int64_t max_message() const { return (first_engine() >> 1) - 1; }
  // The backend's own messages have this tag.
  std::int64_t own_message() const { return max_message() + 1; }
  // The first of `each` tags of a group's `number`-th window. Windows far apart share theirs.
  std::int64_t window(int number, std::int64_t each) const {
    const std::int64_t first = own_message() + 1;
    return first + number % ((first_engine() - first) / each) * each;
  }
};

}  // namespace altorch
