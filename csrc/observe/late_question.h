// A question on its way to the home of a rank that is missed: what is it at? And the words in which it goes, over the links
// between homes (home_links.h) and in datagrams within one (home_news.h). Who answers: trace/late_answers.h.
#pragma once

#include <chrono>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace altorch {

struct LateQuestion {
  int rank = 0;          // that is missed, in the job
  std::string key = {};  // of the group in which it is
  bool operator==(const LateQuestion&) const = default;

  // "Q<rank> <key>" and the end of the line; empty where the key is none that can go.
  std::string line() const;
  // Of such a line without its end; nothing where it is anything else.
  static std::optional<LateQuestion> from(std::string_view line);
  static constexpr std::size_t kLongestLine = 256;
};

// What goes over a link after the greeting: lines with questions, and a goodbye at the beginning of one.
class LinkWords {
 public:
  static constexpr std::string_view kGoodbye = "\nG";

  // What was asked, by bytes that come in any pieces; nothing when the link is over: a goodbye, or nonsense, which proves nothing.
  std::optional<std::vector<LateQuestion>> hear(std::string_view bytes);
  // Whether one more question may be sent: a few a second, and few in all, for they must fit into the buffers of a peer that is stopped
  // for hours: a link with full ones breaks, and would be taken for a death.
  bool may_ask();

 private:
  using Clock = std::chrono::steady_clock;
  std::string line_;  // that has not come to its end
  Clock::time_point began_{};
  int asked_ = 0;     // since then
  int left_ = kMost;  // that may be sent without a pause
  static constexpr int kMost = 512;
};

}  // namespace altorch
