// SPDX-License-Identifier: BSD-3-Clause
// What the groups of a job share to find out why a call stalls. The groups own it, because it holds
// the job's store, which must be released with the last of them.
#pragma once

#include <memory>
#include <string>
#include <utility>

#include "health/desync_queries.h"
#include "health/liveness.h"
#include "health/silent_nodes.h"
#include "trace/late_answers.h"

namespace altorch {

struct JobWatch {
  // `name`: the same on all ranks that watch each other, and unique to them. `ranks`: how many
  // ranks ask the store; 0: as many as are watched.
  JobWatch(std::string watch_name, LivenessSettings settings, int ranks = 0)
      : name(std::move(watch_name)),
        liveness(named(settings, name)),
        queries(settings.store, ranks > 0 ? ranks : static_cast<int>(settings.members.size())) {}

  const std::string name;
  Liveness liveness;
  DesyncQueries queries;
  mutable SilentNodes silent;  // those that left a question about a missing rank unanswered

 private:
  static LivenessSettings named(LivenessSettings settings, const std::string& name) {
    settings.name = name;
    settings.asked = [answers = std::make_shared<LateAnswers>(settings.store)](
                         const LateQuestion& question, long pid) { answers->find(question, pid); };
    return settings;
  }
};

// Its liveness, which keeps it; null for null.
inline std::shared_ptr<Liveness> liveness_of(std::shared_ptr<JobWatch> watch) {
  if (!watch) return nullptr;
  Liveness* const liveness = &watch->liveness;
  return {std::move(watch), liveness};
}

}  // namespace altorch
