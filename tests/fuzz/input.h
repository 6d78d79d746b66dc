// SPDX-License-Identifier: BSD-3-Clause
// The bytes of one run of a fuzz target, taken from the front. What is missing at the end is zero.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string>

namespace altorch::fuzz {

class Input {
 public:
  Input(const std::uint8_t* data, std::size_t bytes) : at_(data), end_(data + bytes) {}
  bool empty() const { return at_ == end_; }
  std::size_t left() const { return static_cast<std::size_t>(end_ - at_); }

  template <class Number>
  Number number() {
    Number value{};
    take(&value, sizeof value);
    return value;
  }
  // 0 to `most`.
  int up_to(int most) { return number<std::uint8_t>() % (most + 1); }
  void take(void* to, std::size_t bytes) {
    const std::size_t there = std::min(bytes, left());
    if (there > 0) std::memcpy(to, at_, there);
    at_ += there;
  }
  std::string rest() {
    std::string text(left(), '\0');
    take(text.data(), text.size());
    return text;
  }
  // Up to the next zero byte; nothing at the end.
  std::optional<std::string> piece() {
    if (empty()) return std::nullopt;
    const std::uint8_t* const zero = std::find(at_, end_, std::uint8_t{0});
    std::string text(at_, zero);
    at_ = zero == end_ ? end_ : zero + 1;
    return text;
  }

 private:
  const std::uint8_t* at_;
  const std::uint8_t* const end_;
};

}  // namespace altorch::fuzz
