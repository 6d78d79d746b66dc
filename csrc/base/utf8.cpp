// SPDX-License-Identifier: BSD-3-Clause
#include "base/utf8.h"

#include <algorithm>

namespace altorch {
namespace {

unsigned byte_at(std::string_view text, std::size_t at) { return static_cast<unsigned char>(text[at]); }

// Of the character at the beginning; 0: it is none. The bounds of second bytes leave out what is
// longer than it need be, surrogates, and what is behind the last code point.
std::size_t length_of_first(std::string_view text) {
  const unsigned first = byte_at(text, 0);
  if (first < 0x80) return 1;
  const std::size_t length = first >= 0xF5   ? 0
                             : first >= 0xF0 ? 4
                             : first >= 0xE0 ? 3
                             : first >= 0xC2 ? 2
                                             : 0;
  if (length == 0 || text.size() < length) return 0;
  const unsigned least = first == 0xE0 ? 0xA0 : first == 0xF0 ? 0x90 : 0x80;
  const unsigned most = first == 0xED ? 0x9F : first == 0xF4 ? 0x8F : 0xBF;
  if (byte_at(text, 1) < least || byte_at(text, 1) > most) return 0;
  const auto goes_on = [](char each) { return (static_cast<unsigned char>(each) & 0xC0) == 0x80; };
  return std::all_of(text.begin() + 2, text.begin() + static_cast<std::ptrdiff_t>(length), goes_on) ? length
                                                                                                    : 0;
}

}  // namespace

std::string as_utf8(std::string_view text, std::size_t most) {
  std::string made;
  while (!text.empty()) {
    const std::size_t length = length_of_first(text), taken = std::max<std::size_t>(1, length);
    if (made.size() + taken > most) break;
    made += length == 0 || is_control(text[0]) ? "?" : text.substr(0, length);
    text.remove_prefix(taken);
  }
  return made;
}

}  // namespace altorch
