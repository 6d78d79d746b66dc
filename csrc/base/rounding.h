// SPDX-License-Identifier: BSD-3-Clause
// Quotients and multiples, rounded up, of numbers that are not negative.
#pragma once

#include <type_traits>

namespace altorch {

template <typename Number>
constexpr Number divided_up(Number value, std::type_identity_t<Number> by) {
  return (value + by - 1) / by;
}
template <typename Number>
constexpr Number rounded_up(Number value, std::type_identity_t<Number> to) {
  return divided_up(value, to) * to;
}

}  // namespace altorch
