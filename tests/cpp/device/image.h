// SPDX-License-Identifier: BSD-3-Clause
// What a kernel finds in a piece of memory, and what it has to leave there: results in some places,
// and everything else untouched.
#pragma once

#include <algorithm>
#include <cstring>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "reduction/reference.h"

namespace altorch {

using Bytes = std::vector<unsigned char>;

class Image {
 public:
  // As aligned as every allocation of a GPU, and shifted from there; what is between places must
  // stay as it is. Returns where the data stands.
  std::size_t place(const Bytes& data, std::size_t shift = 0) {
    const std::size_t at = (before_.size() + kGap + kAlignment - 1) / kAlignment * kAlignment + shift;
    while (before_.size() < at) before_.push_back(static_cast<unsigned char>(noise_()));
    before_.insert(before_.end(), data.begin(), data.end());
    before_.resize(before_.size() + kGap, 0xA5);
    return at;
  }
  // Before the kernel runs.
  void write(std::size_t at, const Bytes& data) { std::copy(data.begin(), data.end(), before_.begin() + at); }
  // After it has run; any NaN is as good as any other.
  void expect(std::size_t at, DType dtype, Bytes elements) {
    results_.push_back({at, dtype, std::move(elements)});
  }
  // Anything may stand there after it has run.
  void ignore(std::size_t at, std::size_t bytes) { ignored_.push_back({at, bytes}); }

  const Bytes& before() const { return before_; }

  // In words, or nothing.
  std::optional<std::string> difference(const void* memory) const {
    const auto* found = static_cast<const unsigned char*>(memory);
    Bytes rest(found, found + before_.size());
    for (const Result& result : results_) {
      const std::size_t count = result.elements.size() / size_of(result.dtype);
      const std::size_t wrong =
          reference::first_difference(result.dtype, found + result.at, result.elements.data(), count);
      if (wrong < count) {
        return "element " + std::to_string(wrong) + " of " + std::to_string(count) + " is " +
               hex(found + result.at, wrong, result.dtype) + " and not " +
               hex(result.elements.data(), wrong, result.dtype);
      }
      write_over(rest, result.at, result.elements.size());
    }
    for (const auto& [at, bytes] : ignored_) write_over(rest, at, bytes);
    const auto [here, there] = std::mismatch(rest.begin(), rest.end(), before_.begin());
    if (here == rest.end()) return std::nullopt;
    return "byte " + std::to_string(here - rest.begin()) + " was written, which is no part of the result";
  }

 private:
  static constexpr std::size_t kAlignment = 64, kGap = 48;

  struct Result {
    std::size_t at;
    DType dtype;
    Bytes elements;
  };

  void write_over(Bytes& bytes, std::size_t at, std::size_t length) const {
    std::copy_n(before_.begin() + at, length, bytes.begin() + at);
  }
  static std::string hex(const unsigned char* elements, std::size_t index, DType dtype) {
    std::string text = "0x";
    for (std::size_t i = size_of(dtype); i-- > 0;) {
      const unsigned char byte = elements[index * size_of(dtype) + i];
      for (const int digit : {byte >> 4, byte & 15}) text += "0123456789abcdef"[digit];
    }
    return text;
  }

  Bytes before_;
  std::vector<Result> results_;
  std::vector<std::pair<std::size_t, std::size_t>> ignored_;
  std::minstd_rand noise_{1};
};

}  // namespace altorch
