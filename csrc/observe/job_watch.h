// What the groups of a job share to find out why something stalls. The groups own it: it holds the job's
// store, which must go with the last of them.
#pragma once

#include <map>
#include <memory>
#include <string>

#include "observe/inquiries.h"
#include "observe/liveness.h"

namespace altorch {

struct JobWatch {
  // `name`: the same on all ranks that watch each other, and nobody else's.
  JobWatch(std::string watch_name, const std::shared_ptr<KeyValueStore>& store, int rank,
           const std::map<int, ProcessCard>& members)
      : name(std::move(watch_name)), liveness(store, rank, members), inquiries(store) {}

  const std::string name;
  Liveness liveness;
  Inquiries inquiries;
};

}  // namespace altorch
