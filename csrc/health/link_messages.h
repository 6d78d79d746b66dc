// SPDX-License-Identifier: BSD-3-Clause
// What goes over a link between nodes after the greeting (node_links.h): lines that ask a question
// or tell a death, and at last a goodbye. Thread rules: one thread at a time.
#pragma once

#include <chrono>
#include <string>
#include <string_view>
#include <vector>

#include "health/late_question.h"

namespace altorch {

struct LinkNews {
  std::vector<LateQuestion> questions;
  std::vector<int> deaths;  // ranks of the job
  bool ended = false;       // a goodbye came, or malformed bytes, which are no evidence of a death
};

class LinkMessages {
 public:
  // Its newline ends a line that was sent in part.
  static constexpr std::string_view kGoodbye = "\nG";
  // "D<rank>;\n": without the semicolon a line that was sent in part would name another rank.
  static std::string death_line(int rank);

  // Takes bytes in pieces of any size and returns what the lines that are complete say, up to the
  // end of the link.
  LinkNews hear(std::string_view bytes);
  // Whether one more question may be sent. The rate is limited, and more so after kMost questions,
  // because the questions must fit into the socket buffer of a peer that is stopped for hours. A
  // link with a full buffer breaks, which looks like a death.
  bool may_ask();

 private:
  using Clock = std::chrono::steady_clock;
  std::string line_;  // incomplete
  Clock::time_point began_{};
  int asked_ = 0;     // since then
  int left_ = kMost;  // that may be sent without a pause
  static constexpr int kMost = 512;
};

}  // namespace altorch
