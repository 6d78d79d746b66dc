// SPDX-License-Identifier: BSD-3-Clause
#include "runtime/scratch.h"

#include <algorithm>
#include <string>

namespace altorch {

ScratchMemory ScratchPool::take(std::size_t bytes) {
  if (bytes > Scratch::kKeep) {  // small ones are no reason to hold a large one
    const std::lock_guard lock(mutex_);
    auto best = free_.end();
    for (auto each = free_.begin(); each != free_.end(); ++each) {
      if (each->capacity >= bytes && (best == free_.end() || each->capacity <= best->capacity)) best = each;
    }
    if (best != free_.end()) {
      ScratchMemory found = std::move(*best);
      free_.erase(best);
      kept_ -= found.capacity;
      return found;
    }
  }
  const std::size_t rounded = (bytes + 4095) / 4096 * 4096;
  ScratchMemory made{std::unique_ptr<void, FreeScratch>(std::aligned_alloc(4096, rounded)), rounded};
  if (made.memory) return made;
  throw Error(ErrorKind::kTransport,
              "out of host memory: " + std::to_string(rounded) + " bytes of scratch space could not be had");
}

void ScratchPool::give(ScratchMemory memory) {
  std::vector<ScratchMemory> released;  // outside of the lock: giving pages back takes a while
  const std::lock_guard lock(mutex_);
  kept_ += memory.capacity;
  free_.push_back(std::move(memory));
  while (kept_ > kBudget) {
    kept_ -= free_.front().capacity;
    released.push_back(std::move(free_.front()));
    free_.erase(free_.begin());
  }
}

std::size_t ScratchPool::kept() const {
  const std::lock_guard lock(mutex_);
  return kept_;
}

}  // namespace altorch
