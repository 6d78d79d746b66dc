// SPDX-License-Identifier: BSD-3-Clause
// One-sided communication of the fake NCCL, as NCCL 2.29 has it: sources and targets lie in
// symmetric windows that begin where NCCL wants them and are of one size on all ranks, and index,
// context and flags are 0. Signals of two ranks are counted together; a wait takes so many as were
// not taken yet.
#include <cstring>

#include "support/fake_nccl_host.h"

namespace altorch::fake_nccl {
namespace {

using Windows = std::map<int, Team::Block>;

// NCCL keeps what is registered mapped until it is told otherwise; with the lock held.
Windows* window_of(FakeComm& comm, void* handle) {
  const auto found = comm.handles.find(handle);
  return found == comm.handles.end() || found->second == 0 ? nullptr : &comm.team->windows[found->second];
}

bool holds(const Team::Block& block, const void* data, std::size_t bytes) {
  const auto begin = reinterpret_cast<std::uintptr_t>(block.data),
             at = reinterpret_cast<std::uintptr_t>(data);
  return at >= begin && at + bytes <= begin + block.bytes;
}

// Whether this rank has registered it.
bool is_registered(FakeComm& comm, const void* data, std::size_t bytes) {
  return std::any_of(comm.handles.begin(), comm.handles.end(), [&](const auto& handle) {
    return handle.second != 0 && holds(comm.team->windows[handle.second].at(comm.rank), data, bytes);
  });
}

bool is_symmetric(const Windows& window) {
  return std::all_of(window.begin(), window.end(), [&](const auto& entry) {
    const auto address = reinterpret_cast<std::uintptr_t>(entry.second.data);
    return address % nccl::kWindowAlignment == 0 && entry.second.bytes == window.begin()->second.bytes;
  });
}

bool is_peer(const FakeComm& comm, int peer) { return peer >= 0 && peer < comm.team->size; }

void raise_signal(FakeComm& comm, int peer) {
  const std::lock_guard lock(comm.state->mutex);
  if (comm.aborted) return;
  ++comm.team->signals[{comm.rank, peer}];
  comm.state->changed.notify_all();
}

Result put_signal(const void* data, std::size_t count, int type, int peer, void* window, std::size_t offset,
                  int index, int context, unsigned flags, Comm handle, Stream stream) {
  return call_of("ncclPutSignal", handle, [&](FakeComm& comm, Lock&) {
    const std::size_t bytes = count * bytes_of(type);
    const Windows* const there = window_of(comm, window);
    if (index != 0 || context != 0 || flags != 0 || !is_peer(comm, peer) || !there || !is_symmetric(*there) ||
        !is_registered(comm, data, bytes))
      return kInvalidArgument;
    const Team::Block target = there->at(peer);
    if (offset > target.bytes || bytes > target.bytes - offset) return kInvalidArgument;
    put_on_stream(
        *comm.state, comm,
        [&comm, peer, data, bytes, to = target.data + offset] {
          std::memmove(to, data, bytes);
          raise_signal(comm, peer);
        },
        stream);
    return kSuccess;
  });
}

Result signal(int peer, int index, int context, unsigned flags, Comm handle, Stream stream) {
  return call_of("ncclSignal", handle, [&](FakeComm& comm, Lock&) {
    if (index != 0 || context != 0 || flags != 0 || !is_peer(comm, peer)) return kInvalidArgument;
    if (comm.windows == 0) return kInvalidUsage;
    put_on_stream(
        *comm.state, comm, [&comm, peer] { raise_signal(comm, peer); }, stream);
    return kSuccess;
  });
}

Result wait_signal(int descriptors, nccl::AwaitedSignals* signals, Comm handle, Stream stream) {
  return call_of("ncclWaitSignal", handle, [&](FakeComm& comm, Lock&) {
    if (descriptors != 1 || signals->count < 1 || signals->index != 0 || signals->context != 0 ||
        !is_peer(comm, signals->peer))
      return kInvalidArgument;
    if (comm.windows == 0) return kInvalidUsage;
    const std::pair<int, int> way(signals->peer, comm.rank);
    const std::uint64_t until = comm.team->awaited[way] += static_cast<std::uint64_t>(signals->count);
    put_on_stream(
        *comm.state, comm,
        [&comm, way, until] {
          Lock lock(comm.state->mutex);
          comm.state->wait(lock, &comm, "ncclWaitSignal", [&] { return comm.team->signals[way] >= until; });
        },
        stream);
    return kSuccess;
  });
}

}  // namespace

void add_one_sided(nccl::Table& table) {
  table.put_signal = put_signal;
  table.signal = signal;
  table.wait_signal = wait_signal;
}

}  // namespace altorch::fake_nccl
