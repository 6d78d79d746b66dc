// SPDX-License-Identifier: BSD-3-Clause
// A question about the current call of a missing rank, and its form on the links between nodes
// (node_links.h) and in the datagrams within a node (node_events.h). trace/late_answers.h answers
// it.
#pragma once

#include <chrono>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace altorch {

struct LateQuestion {
  int rank = 0;          // the missing one, as a rank of the job
  std::string key = {};  // of the group that waits for the rank
  bool operator==(const LateQuestion&) const = default;

  // "Q<rank> <key>\n"; empty if the key cannot be sent.
  std::string line() const;
  // Parses such a line without its end; empty if it is malformed.
  static std::optional<LateQuestion> from(std::string_view line);
  static constexpr std::size_t kLongestLine = 256;
};

// What goes over a link after the greeting: question lines, then kGoodbye, whose newline ends a
// line that was sent in part.
class LinkMessages {
 public:
  static constexpr std::string_view kGoodbye = "\nG";

  // Takes bytes in pieces of any size and returns the questions that are complete. Empty if the
  // link has ended: after a goodbye, or after malformed bytes, which are no evidence of a death.
  std::optional<std::vector<LateQuestion>> hear(std::string_view bytes);
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
