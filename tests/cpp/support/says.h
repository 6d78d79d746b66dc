// SPDX-License-Identifier: BSD-3-Clause
// What tests ask of an error's text.
#pragma once

#include <string_view>

namespace altorch {

inline bool says(std::string_view text, std::string_view words) {
  return text.find(words) != std::string_view::npos;
}

}  // namespace altorch
