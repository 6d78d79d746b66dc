// SPDX-License-Identifier: BSD-3-Clause
// A buffer that grows, and is kept for reuse: fresh pages cost more than the copies that they are
// for.
//
// A small buffer stays with its group. A large buffer goes back to the pool of the process after
// each operation, and from there to the group that asks next. So the memory that is kept does not
// grow with the number of groups.
#pragma once

#include <cstddef>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "base/error.h"

namespace altorch {

struct FreeScratch {
  void operator()(void* memory) const { std::free(memory); }
};
struct ScratchMemory {
  std::unique_ptr<void, FreeScratch> memory;
  std::size_t capacity = 0;
};

// Thread rules: any thread.
class ScratchPool {
 public:
  static ScratchPool& instance() {
    static auto* pool = new ScratchPool();
    return *pool;
  }
  // At least `bytes` bytes, aligned to a page. Throws Error(kTransport) when there is no memory.
  ScratchMemory take(std::size_t bytes);
  // Takes memory back. No thread and no transport may touch it any more.
  void give(ScratchMemory memory);
  // The bytes that the pool keeps now, at most kBudget.
  std::size_t kept() const;
  static constexpr std::size_t kBudget = std::size_t{32} << 20;

 private:
  mutable std::mutex mutex_;
  std::vector<ScratchMemory> free_;  // the one given last at the end
  std::size_t kept_ = 0;
};

// Thread rules: one user at a time.
class Scratch {
 public:
  // At least `bytes` bytes, aligned to a page; what was in it is lost when it grows. Throws
  // Error(kTransport) when there is no memory.
  void* reserve(std::size_t bytes) {
    if (bytes > held_.capacity) {
      held_ = {};
      held_ = ScratchPool::instance().take(bytes);
    }
    return held_.memory.get();
  }
  // Gives a large buffer back to the pool. To be called only between operations: memory that a
  // transport may still write to must not go to another group.
  void trim() {
    if (held_.capacity > kKeep) ScratchPool::instance().give(std::exchange(held_, {}));
  }
  static constexpr std::size_t kKeep = std::size_t{64} << 10;

 private:
  ScratchMemory held_;
};

}  // namespace altorch
