// SPDX-License-Identifier: BSD-3-Clause
// A question about the current call of a missing rank, and its form on the links between nodes
// (node_links.h) and in the datagrams within a node (node_events.h). trace/late_answers.h answers
// it.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

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
  static constexpr char kFirst = 'Q';  // of a line
};

}  // namespace altorch
