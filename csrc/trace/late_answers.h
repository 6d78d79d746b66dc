// SPDX-License-Identifier: BSD-3-Clause
// Answers questions of other nodes about missing ranks of this node. The leader of this node, which
// is linked to other nodes, asks the process of the rank. It writes the answer into the job's
// store, where all ranks that asked look for it.
//
// A question costs the store five requests, however many ranks ask it. Thread rules: any thread. A
// thread (al-answers) lives for as long as there are questions, because both the store and the
// processes may be slow.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

#include "health/late_question.h"
#include "rendezvous/key_value_store.h"

namespace altorch {

// An answer as it stands in the store.
struct LateAnswer {
  std::int64_t asked = 0;  // how many ranks had asked when it was found
  std::string text = {};   // empty: the process does not answer

  std::string encode() const { return std::to_string(asked) + " " + text; }
  // Cuts the text to what an error can show. If the text is malformed, `asked` is 0.
  static LateAnswer from(const std::optional<std::string>& text);
  // The key that counts the ranks that ask, and the key of the answer.
  static std::string count_key(const LateQuestion& question);
  static std::string key(const LateQuestion& question);
};

class LateAnswers : public std::enable_shared_from_this<LateAnswers> {
 public:
  explicit LateAnswers(std::shared_ptr<KeyValueStore> store) : store_(std::move(store)) {}

  // Queues a question about that process. Does not wait.
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
