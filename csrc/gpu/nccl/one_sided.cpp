// SPDX-License-Identifier: BSD-3-Clause
// One-sided communication of NCCL 2.29 and later. What its interface wants: windows that all ranks
// register alike, sources that lie in such a window, a signal with every put, and of the several
// signals that its arguments name the first.
#include "gpu/nccl/nccl_comm.h"

namespace altorch::nccl {
namespace {

constexpr int kOldestWithWindows = 22900;
constexpr char kGone[] = "the NCCL communicator of the window was aborted";

}  // namespace

std::optional<std::string> NcclComm::one_sided_unsupported_reason() {
  try {
    const Library& found = library();
    const Table& table = found.table;
    if (found.version >= kOldestWithWindows && table.add_window && table.put_signal && table.signal &&
        table.wait_signal)
      return std::nullopt;
    return "NCCL " + found.version_text() + " has no ncclPutSignal and ncclWaitSignal (2.29 has)";
  } catch (const Error& error) {
    return error.what();
  }
}

void NcclComm::put_signal(const void* from, std::size_t bytes, int peer, void* buffer, std::size_t offset,
                          void* stream) {
  const std::lock_guard lock(mutex_);
  if (!comm_) throw Error(ErrorKind::kClosed, kGone);
  void* const window = buffers_.at(buffer).handle;
  check("ncclPutSignal",
        table_.put_signal(from, bytes, kUint8, peer, window, offset, 0, 0, 0, comm_, stream));
}

void NcclComm::signal(int peer, void* stream) {
  const std::lock_guard lock(mutex_);
  if (!comm_) throw Error(ErrorKind::kClosed, kGone);
  check("ncclSignal", table_.signal(peer, 0, 0, 0, comm_, stream));
}

void NcclComm::wait_signal(int peer, void* stream) {
  const std::lock_guard lock(mutex_);
  if (!comm_) throw Error(ErrorKind::kClosed, kGone);
  AwaitedSignals one{.count = 1, .peer = peer, .index = 0, .context = 0};
  check("ncclWaitSignal", table_.wait_signal(1, &one, comm_, stream));
}

}  // namespace altorch::nccl
