// SPDX-License-Identifier: BSD-3-Clause
// An all_reduce with what comes behind it (base/rms_norm.h) in one kernel per rank, over memory of
// the ranks' GPUs.
#pragma once

#include <vector>

#include "base/operation.h"
#include "device/device.h"
#include "gpu/ll_exchanges.h"

namespace altorch {

// Thread rules: one thread at a time.
class NormedSums {
 public:
  // Zero at first, all of it; by rank, nothing of this one's.
  struct Slots {
    LlSlotShape shape;                                // a region holds the rows of a block
    std::vector<std::uint64_t*> send_slots;           // this rank's, for each peer
    std::vector<const std::uint64_t*> receive_slots;  // the peers', for this rank
  };

  NormedSums(Device& device, Slots slots, int rank, int ranks, const std::uint32_t* aborted);

  // Depends on nothing but what all ranks have compared (runtime/fingerprint.h). `shape`: of the
  // slots.
  static bool fits(const Operation& operation, const LlSlotShape& shape);
  // One that fits().
  void enqueue(const Operation& operation, Stream stream);

 private:
  Device& device_;
  const Slots slots_;
  const int rank_, ranks_;
  const std::uint32_t* const aborted_;
  const DeviceMemory numbers_;  // of exchanges, by block
};

}  // namespace altorch
