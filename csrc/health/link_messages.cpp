// SPDX-License-Identifier: BSD-3-Clause
#include "health/link_messages.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "base/number.h"

namespace altorch {
namespace {

constexpr char kDeath = 'D', kDeathEnd = ';';
constexpr int kMostASecond = 16;
constexpr std::chrono::seconds kPause{10};  // between two questions, after LinkMessages::kMost of them

std::optional<int> death_of(std::string_view line) {
  if (!line.starts_with(kDeath) || !line.ends_with(kDeathEnd)) return std::nullopt;
  return to_number<int>(line.substr(1, line.size() - 2));
}

}  // namespace

std::string LinkMessages::death_line(int rank) { return kDeath + std::to_string(rank) + kDeathEnd + "\n"; }

// A line of which the buffer took a part only runs into the next one: so it may be as long as two.
LinkNews LinkMessages::hear(std::string_view bytes) {
  LinkNews news;
  for (const char byte : bytes) {
    if (byte == '\n') {
      if (auto question = LateQuestion::from(line_)) news.questions.push_back(*std::move(question));
      if (const auto rank = death_of(line_)) news.deaths.push_back(*rank);
      line_.clear();
    } else if ((line_.empty() && byte != LateQuestion::kFirst && byte != kDeath) ||
               line_.size() >= 2 * LateQuestion::kLongestLine) {
      news.ended = true;
      return news;
    } else {
      line_ += byte;
    }
  }
  return news;
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
