// What the groups of a job share to find out why something stalls. The groups own it: it holds the job's
// store, which must go with the last of them.
#pragma once

#include <memory>
#include <string>

#include "observe/inquiries.h"
#include "observe/liveness.h"

namespace altorch {

struct JobWatch {
  // `name`: the same on all ranks that watch each other, and nobody else's.
  JobWatch(std::string watch_name, LivenessSettings settings)
      : name(std::move(watch_name)), liveness(named(settings, name)), inquiries(settings.store) {}

  const std::string name;
  Liveness liveness;
  Inquiries inquiries;

 private:
  static LivenessSettings named(LivenessSettings settings, const std::string& name) {
    settings.name = name;
    return settings;
  }
};

}  // namespace altorch
