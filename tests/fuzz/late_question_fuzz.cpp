// SPDX-License-Identifier: BSD-3-Clause
// What comes over the links between nodes, and what the store holds as an answer.
#include "fuzz/target.h"
#include "health/link_messages.h"
#include "trace/late_answers.h"

namespace altorch {

FUZZ_TARGET(late_question, 2000) {
  if (input.up_to(1) == 0) {
    const LateAnswer answer = LateAnswer::from(input.rest());
    fuzz::require(answer.asked >= 0 && answer.text.size() <= 1024, "an answer is short");
    fuzz::require(answer.text.find('\n') == std::string::npos, "an answer is one line");
    return;
  }
  LinkMessages messages;
  while (const auto said = input.piece()) {
    const LinkNews news = messages.hear(*said);
    for (const LateQuestion& question : news.questions) {
      const std::string line = question.line();
      fuzz::require(!line.empty() && line.size() <= LateQuestion::kLongestLine,
                    "what is heard can be passed on");
      fuzz::require(LateQuestion::from(line.substr(0, line.size() - 1)) == question,
                    "and is heard as the same");
    }
    if (news.ended) return;
  }
}

}  // namespace altorch
