// SPDX-License-Identifier: BSD-3-Clause
#include "trace/far_ranks.h"

#include "rendezvous/poll_pause.h"
#include "trace/late_answers.h"

namespace altorch {
namespace {

// If there is no answer after this time, the question may not have been sent: the rank that asked
// first, or its leader, is gone or stopped.
constexpr std::chrono::milliseconds kWithOthers{300};

}  // namespace

FarRanks::FarRanks(const JobWatch& watch, std::string key, std::size_t most, WaitClock::time_point deadline)
    : watch_(watch),
      store_(*watch.liveness.settings().store),
      key_(std::move(key)),
      most_(most),
      deadline_(deadline) {}

const std::string& FarRanks::node_of(const Asked& asked) const {
  return watch_.liveness.settings().members.at(asked.question.rank).node;
}

void FarRanks::ask(int rank, int global_rank) {
  const LateQuestion question{global_rank, key_};
  if (is_lost_ || asked_.size() == most_ || question.line().empty() || WaitClock::now() > deadline_ ||
      watch_.silent.contains(watch_.liveness.settings().members.at(global_rank).node))
    return;
  try {
    asked_.push_back({rank, question, store_.add(LateAnswer::count_key(question), 1)});
    std::map<int, std::string> none;
    look(asked_.back(), none, /*is_late=*/false);
  } catch (const std::exception&) {
    is_lost_ = true;
  }
}

bool FarRanks::look(Asked& asked, std::map<int, std::string>& texts, bool is_late) {
  LateAnswer answer = LateAnswer::from(store_.try_get(LateAnswer::key(asked.question)));
  if (answer.asked >= asked.number) {
    watch_.silent.remove(node_of(asked));
    if (!answer.text.empty()) texts[asked.rank] = std::move(answer.text);
    return true;
  }
  if (!asked.told && (is_late || answer.asked + 1 == asked.number)) {
    asked.told = true;
    watch_.liveness.ask(asked.question);
  }
  return false;
}

void FarRanks::hear(std::map<int, std::string>& texts) {
  const auto late = WaitClock::now() + kWithOthers;
  PollPause pause(static_cast<int>(watch_.liveness.settings().members.size()), deadline_);
  try {
    while (!is_lost_ && !asked_.empty() && WaitClock::now() < deadline_) {
      const bool is_late = WaitClock::now() > late;
      std::erase_if(asked_,
                    [&](Asked& each) { return WaitClock::now() < deadline_ && look(each, texts, is_late); });
      if (!asked_.empty()) pause.pause();
    }
  } catch (const std::exception&) {
  }
  for (const Asked& each : asked_) watch_.silent.add(node_of(each));
}

}  // namespace altorch
