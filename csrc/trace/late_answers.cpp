// SPDX-License-Identifier: BSD-3-Clause
#include "trace/late_answers.h"

#include <algorithm>
#include <utility>

#include "base/number.h"
#include "base/utf8.h"
#include "platform/native_thread.h"
#include "trace/ask_process.h"

namespace altorch {
namespace {

constexpr std::size_t kMostQuestions = 16, kLongestWords = 1024;
constexpr std::chrono::milliseconds kProcessTimeout{250};  // with one process: there may be four, in a second
constexpr int kMostTimes = 16;

std::string prefix_of(const LateQuestion& question) {
  return "late/" + std::to_string(question.rank) + "/" + question.key;
}

std::int64_t count_in(std::string_view text) {
  return std::max<std::int64_t>(0, to_number<std::int64_t>(text).value_or(0));
}

}  // namespace

std::string LateAnswer::count_key(const LateQuestion& question) { return prefix_of(question) + "/asked"; }
std::string LateAnswer::key(const LateQuestion& question) { return prefix_of(question) + "/answer"; }

LateAnswer LateAnswer::from(const std::optional<std::string>& text) {
  const auto space = text ? text->find(' ') : std::string::npos;
  if (space == std::string::npos) return {};
  const std::string_view all = *text;
  const std::int64_t asked = count_in(all.substr(0, space));
  if (asked == 0) return {};
  return {asked, as_utf8(all.substr(space + 1), kLongestWords)};
}

void LateAnswers::find(const LateQuestion& question, long pid) noexcept {
  const std::lock_guard lock(mutex_);
  const std::pair entry(question, pid);
  if (questions_.size() >= kMostQuestions ||
      std::find(questions_.begin(), questions_.end(), entry) != questions_.end())
    return;
  try {
    questions_.push_back(entry);
    if (!runs_) start_native_thread("al-answers", [self = shared_from_this()] { self->run(); });
    runs_ = true;
  } catch (const std::exception&) {  // no more threads: the ranks that asked learn less
    questions_.clear();
  }
}

void LateAnswers::run() noexcept {
  while (true) {
    std::pair<LateQuestion, long> next;
    {
      const std::lock_guard lock(mutex_);
      runs_ = !questions_.empty();
      if (!runs_) return;
      next = std::move(questions_.front());
      questions_.pop_front();
    }
    try {
      answer(next.first, next.second);
    } catch (const std::exception&) {  // the store is gone, with its host or with the last group
    }
  }
}

// Repeats until there is an answer for all ranks that have asked. A rank that asks while an answer
// is written relies on the question that an earlier rank has sent.
void LateAnswers::answer(const LateQuestion& question, long pid) {
  std::int64_t answered = LateAnswer::from(store_->try_get(LateAnswer::key(question))).asked;
  bool is_sure = false;  // a store that was slow gives what it was asked for before
  for (int times = 0; times < kMostTimes; ++times) {
    const std::int64_t asked = count_in(store_->try_get(LateAnswer::count_key(question)).value_or(""));
    if (asked <= answered && std::exchange(is_sure, true)) return;
    if (asked <= answered) continue;
    std::string text = late_text_of_process(pid, question.key, kProcessTimeout).value_or("");
    store_->set(LateAnswer::key(question), LateAnswer{asked, std::move(text)}.encode());
    answered = asked;
  }
}

}  // namespace altorch
