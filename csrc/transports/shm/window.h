// SPDX-License-Identifier: BSD-3-Clause
// Windows of ranks that are on one node. A rank reads and writes a peer's memory directly if it can
// map it; otherwise the system copies (single_copy.h). An access that is more than a copy takes a
// lock of its target.
#pragma once

#include <atomic>
#include <memory>
#include <vector>

#include "platform/single_copy.h"
#include "transports/window.h"

namespace altorch::shm {

class ShmWindow : public RemoteMemory {
 public:
  // The memory of one rank.
  struct Part {
    std::shared_ptr<std::byte> mapped;  // here; null: the system reads and writes it
    Process process;                    // its owner then,
    std::uint64_t address = 0;          // and its address there
  };
  // `control`: control_bytes() of memory that all share, zero at first. `parts`: by rank.
  // `crowded`: AdaptiveWait::is_crowd().
  ShmWindow(std::shared_ptr<std::byte> control, int rank, std::vector<Part> parts, bool crowded);
  static std::size_t control_bytes(int size);

  const char* name() const override { return "shm"; }
  State begin(WindowCall& call, std::optional<Error>& error) override;
  State test(WindowCall& call, std::optional<Error>& error) override { return begin(call, error); }
  bool cancel(WindowCall&) override { return true; }
  std::uint64_t signals(int source, int slot) const override;
  WaitTarget wait_target(int source, int slot, std::uint64_t least) const override;
  bool has_left(int rank) const override { return desks_[rank].closed.load(std::memory_order_acquire) != 0; }
  std::byte* map(int rank) override { return parts_[static_cast<std::size_t>(rank)].mapped.get(); }
  bool close(bool agreed) override;

 private:
  // What belongs to one target.
  struct alignas(64) Desk {
    std::atomic<std::uint32_t> lock;  // for more than a copy: 0, or the rank + 1 of its holder
    std::atomic<std::uint32_t> closed;
    std::atomic<std::uint32_t> visitors;  // how many accesses use the memory now
    WaitTarget::Sleepers sleepers;
  };
  // From one source to one target.
  struct alignas(64) Signals {
    WaitTarget::Number slots[kSignalSlots];
  };

  class Lock;
  class Visit;
  Signals& signals_of(int target, int source) const {
    return signals_[static_cast<std::size_t>(target) * parts_.size() + static_cast<std::size_t>(source)];
  }
  bool carry_out(WindowCall& call);
  bool change(WindowCall& call, const Process& process, std::uint64_t there, const std::byte* from);

  const std::shared_ptr<std::byte> control_;
  const int rank_;
  const std::vector<Part> parts_;
  const bool crowded_;
  Desk* const desks_;
  Signals* const signals_;
};

}  // namespace altorch::shm
