// What the groups of a job share to find out why something stalls. The groups own it: it holds the job's
// store, which must go with the last of them.
#pragma once

#include <chrono>
#include <memory>

#include "observe/inquiries.h"
#include "observe/liveness.h"

namespace altorch {

struct JobWatch {
  // Collective over the job.
  JobWatch(const std::shared_ptr<KeyValueStore>& store, int rank, int size, std::chrono::milliseconds timeout)
      : liveness(store, rank, size, timeout), inquiries(store) {}

  Liveness liveness;
  Inquiries inquiries;
};

}  // namespace altorch
