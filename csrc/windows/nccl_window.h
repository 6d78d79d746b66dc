// SPDX-License-Identifier: BSD-3-Clause
// Windows with NCCL's own beside the mapped memory of a peer: NCCL 2.29 puts with a signal,
// signals, and has a stream wait for a signal, and no more than that. So it carries what belongs to
// slot 0 of other ranks, whose signals it counts itself; all else goes as in any DeviceWindow, on
// the same streams, and comes in their order.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "gpu/nccl/nccl_comm.h"
#include "windows/device_window.h"
#include "windows/row.h"

namespace altorch {

class NcclWindow : public DeviceWindow {
 public:
  static constexpr int kSlot = 0;

  // `communicator`: this window's alone, for it counts all signals of two ranks together; what
  // `own` says is registered with it.
  NcclWindow(Memory memory, int rank, const Registered& own, OnError on_error, bool co_resident,
             std::vector<std::string> no_atomics, std::unique_ptr<nccl::NcclComm> communicator);

  const char* name() const override { return "nccl"; }
  State begin(WindowCall& call, std::optional<Error>& error) override;
  void wait(const WindowCall& call) override;
  void end() override;
  bool close(bool agreed) override;

 private:
  // Throws Error(kUnsupported) where a graph is to take it.
  bool carries(const WindowCall& call) const;
  // Whether NCCL can move the data, too.
  bool is_one_put(const WindowCall& call) const;

  const std::unique_ptr<nccl::NcclComm> communicator_;
  std::atomic<bool> agreed_{false};  // all ranks close it: nothing hangs
};

// As WindowRow::open.
std::unique_ptr<RemoteMemory> open_nccl_window(const WindowOpening& opening, std::string& unsupported_reason);
// Why there can be none here, as a clause; empty: there can.
std::string nccl_window_unsupported_reason(const GpuSource& gpus, int device);

}  // namespace altorch
