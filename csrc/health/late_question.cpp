// SPDX-License-Identifier: BSD-3-Clause
#include "health/late_question.h"

#include <algorithm>

#include "base/number.h"
#include "base/utf8.h"

namespace altorch {
namespace {

constexpr char kQuestion = 'Q';
constexpr int kMostASecond = 16;
constexpr std::chrono::seconds kPause{10};  // between two questions, after LinkMessages::kMost of them

}  // namespace

std::string LateQuestion::line() const {
  const std::string text = kQuestion + std::to_string(rank) + " " + key;
  return from(text) ? text + "\n" : "";
}

std::optional<LateQuestion> LateQuestion::from(std::string_view line) {
  const auto space = line.find(' ');
  if (space == line.npos || line.front() != kQuestion || line.size() >= kLongestLine) return std::nullopt;
  const auto rank = to_number<int>(line.substr(1, space - 1));
  const std::string_view key = line.substr(space + 1);
  const bool is_text = std::none_of(key.begin(), key.end(), is_control);
  return rank && is_text && !key.empty() ? std::optional(LateQuestion{*rank, std::string(key)})
                                         : std::nullopt;
}

// A line of which the buffer took a part only runs into the next one: so it may be as long as two.
std::optional<std::vector<LateQuestion>> LinkMessages::hear(std::string_view bytes) {
  std::vector<LateQuestion> questions;
  for (const char byte : bytes) {
    if (byte == '\n') {
      if (auto question = LateQuestion::from(line_)) questions.push_back(*std::move(question));
      line_.clear();
    } else if ((line_.empty() && byte != kQuestion) || line_.size() >= 2 * LateQuestion::kLongestLine) {
      return std::nullopt;
    } else {
      line_ += byte;
    }
  }
  return questions;
}

bool LinkMessages::may_ask() {
  const auto now = Clock::now();
  if (now - began_ > (left_ > 0 ? std::chrono::seconds(1) : kPause)) {
    began_ = now;
    asked_ = 0;
    left_ = std::max(left_, 1);
  }
  if (left_ == 0 || asked_ == kMostASecond) return false;
  ++asked_;
  --left_;
  return true;
}

}  // namespace altorch
