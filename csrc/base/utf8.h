// SPDX-License-Identifier: BSD-3-Clause
// Text from elsewhere that goes into errors: Python raises nothing that is no UTF-8. Thread rules:
// any thread.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace altorch {

constexpr bool is_control(char each) { return static_cast<unsigned char>(each) < ' ' || each == '\x7f'; }

// With '?' in place of what is no character of UTF-8, or a control character; at most so many
// bytes, and no part of a character.
std::string as_utf8(std::string_view text, std::size_t most);

}  // namespace altorch
