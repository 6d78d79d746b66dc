// SPDX-License-Identifier: BSD-3-Clause
// FNV-1a: a hash that is the same in every process, for names that ranks must agree on without
// asking.
#pragma once

#include <cstdint>
#include <string_view>

namespace altorch {

class Fnv {
 public:
  Fnv& add(std::uint64_t value) {
    value_ = (value_ ^ value) * 1099511628211u;
    return *this;
  }
  Fnv& add(std::string_view text) {
    for (const char character : text) add(static_cast<unsigned char>(character));
    return *this;
  }
  std::uint64_t value() const { return value_; }

 private:
  std::uint64_t value_ = 14695981039346656037u;
};

}  // namespace altorch
