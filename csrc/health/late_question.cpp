// SPDX-License-Identifier: BSD-3-Clause
#include "health/late_question.h"

#include <algorithm>

#include "base/number.h"
#include "base/utf8.h"

namespace altorch {

std::string LateQuestion::line() const {
  const std::string text = kFirst + std::to_string(rank) + " " + key;
  return from(text) ? text + "\n" : "";
}

std::optional<LateQuestion> LateQuestion::from(std::string_view line) {
  const auto space = line.find(' ');
  if (space == line.npos || line.front() != kFirst || line.size() >= kLongestLine) return std::nullopt;
  const auto rank = to_number<int>(line.substr(1, space - 1));
  const std::string_view key = line.substr(space + 1);
  const bool is_text = std::none_of(key.begin(), key.end(), is_control);
  return rank && is_text && !key.empty() ? std::optional(LateQuestion{*rank, std::string(key)})
                                         : std::nullopt;
}

}  // namespace altorch
