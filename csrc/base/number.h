// SPDX-License-Identifier: BSD-3-Clause
// Numbers in texts that this process has not written: those of other ranks, of the environment, of
// a file.
#pragma once

#include <charconv>
#include <optional>
#include <string>
#include <string_view>

#include "base/error.h"
#include "base/utf8.h"

namespace altorch {

// Nothing where the text is anything else than one number that fits.
template <class Number>
std::optional<Number> to_number(std::string_view text, int base = 10) {
  Number value{};
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value, base);
  return error == std::errc() && stop == end ? std::optional(value) : std::nullopt;
}

// The beginning of a text, as an error quotes it.
inline std::string excerpt(std::string_view text) {
  constexpr std::size_t kMost = 64;
  return "'" + as_utf8(text, kMost) + (text.size() > kMost ? "...'" : "'");
}

// `what`: what another rank should have written. Throws Error(kInternal) where it is no such
// number.
template <class Number>
Number number_from(std::string_view text, const std::string& what) {
  if (const auto number = to_number<Number>(text)) return *number;
  throw Error(ErrorKind::kInternal, "another rank wrote " + excerpt(text) + " as " + what +
                                        ": do all ranks run the same version of altorch?");
}

}  // namespace altorch
