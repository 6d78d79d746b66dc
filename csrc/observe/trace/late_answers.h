// SPDX-License-Identifier: BSD-3-Clause
// Answers to other nodes, about processes of this one that are missed there: found by the process that is linked to those
// nodes, and left in the job's store, where all who asked look for them.
//
// A question costs the store five requests; that many ask the same costs no more. Thread rules: any thread. A thread (al-answers) lives
// for as long as there are questions, as both the store and the processes may take their time.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

#include "rendezvous/key_value_store.h"
#include "observe/late_question.h"

namespace altorch {

// As it stands in the store.
struct LateAnswer {
  std::int64_t asked = 0;  // how many had asked when it was found, one after another
  std::string words = {};  // empty: the process does not answer

  std::string encode() const { return std::to_string(asked) + " " + words; }
  // Cut to what an error can show; none has asked where the text is anything else.
  static LateAnswer from(const std::optional<std::string>& text);
  // The keys where those who ask are counted, and where the answer stands.
  static std::string count_key(const LateQuestion& question);
  static std::string key(const LateQuestion& question);
};

class LateAnswers : public std::enable_shared_from_this<LateAnswers> {
 public:
  explicit LateAnswers(std::shared_ptr<KeyValueStore> store) : store_(std::move(store)) {}

  // About that process. Does not wait.
  void find(const LateQuestion& question, long pid) noexcept;

 private:
  void run() noexcept;
  void answer(const LateQuestion& question, long pid);

  const std::shared_ptr<KeyValueStore> store_;
  std::mutex mutex_;  // guards what follows
  std::deque<std::pair<LateQuestion, long>> questions_;
  bool runs_ = false;
};

}  // namespace altorch
