// SPDX-License-Identifier: BSD-3-Clause
// Memory of the fake NCCL's, and buffers that it is told of.
#include <atomic>
#include <cstdlib>

#include "support/fake_nccl_host.h"

namespace altorch::fake_nccl {
namespace {

Result allocate(void** memory, std::size_t bytes) {
  *memory = std::malloc(bytes);
  return *memory ? kSuccess : kInternalError;
}

Result release(void* memory) {
  std::free(memory);
  return kSuccess;
}

void* new_handle(FakeComm& comm, std::uint64_t window) {
  static std::atomic<std::uintptr_t> last{1000};
  void* handle = reinterpret_cast<void*>(++last);
  comm.handles[handle] = window;
  return handle;
}

Result remove_handle(FakeComm& comm, void* handle, bool is_window) {
  const auto found = comm.handles.find(handle);
  if (found == comm.handles.end() || (found->second != 0) != is_window) return kInvalidArgument;
  comm.handles.erase(found);
  return kSuccess;
}

Result add_buffer(Comm handle, void*, std::size_t, void** registered) {
  return call_of("ncclCommRegister", handle, [&](FakeComm& comm, Lock&) {
    *registered = new_handle(comm, 0);
    return kSuccess;
  });
}
Result remove_buffer(Comm handle, void* registered) {
  return call_of("ncclCommDeregister", handle,
                 [&](FakeComm& comm, Lock&) { return remove_handle(comm, registered, false); });
}
Result add_window(Comm handle, void* buffer, std::size_t bytes, void** window, int flags) {
  return call_of("ncclCommWindowRegister", handle, [&](FakeComm& comm, Lock& lock) {
    if (flags != nccl::kSymmetricWindow) return kInvalidArgument;
    const std::uint64_t number = ++comm.windows;
    auto& all = comm.team->windows[number];
    all[comm.rank] = {static_cast<unsigned char*>(buffer), bytes};
    comm.state->changed.notify_all();
    const auto size = static_cast<std::size_t>(comm.team->size);
    if (!comm.state->wait(lock, &comm, "ncclCommWindowRegister", [&] { return all.size() == size; }))
      return kInternalError;
    *window = new_handle(comm, number);
    return kSuccess;
  });
}
Result remove_window(Comm handle, void* window) {
  return call_of("ncclCommWindowDeregister", handle,
                 [&](FakeComm& comm, Lock&) { return remove_handle(comm, window, true); });
}

}  // namespace

void add_buffers(nccl::Table& table) {
  table.allocate = allocate;
  table.release = release;
  table.add_buffer = add_buffer;
  table.remove_buffer = remove_buffer;
  table.add_window = add_window;
  table.remove_window = remove_window;
}

}  // namespace altorch::fake_nccl
