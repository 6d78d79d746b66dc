// SPDX-License-Identifier: BSD-3-Clause
// Memory of the fake NCCL's communicators, given back and taken again.
#include "support/fake_nccl.h"
#include "support/fake_nccl_host.h"

namespace altorch::fake_nccl {
namespace {

Result suspend(Comm handle, int flags) {
  return call_of("ncclCommSuspend", handle, [&](FakeComm& comm, Lock&) {
    if (flags != nccl::kSuspendMemory || comm.suspended) return kInvalidArgument;
    if (comm.pending > 0) comm.state->misuse.push_back("ncclCommSuspend with something in flight");
    comm.suspended = true;
    return kSuccess;
  });
}

Result resume(Comm handle) {
  return call_of("ncclCommResume", handle, [](FakeComm& comm, Lock&) {
    if (!comm.suspended) return kInvalidUsage;
    comm.suspended = false;
    return kSuccess;
  });
}

Result memory_stat(Comm handle, int stat, std::uint64_t* value) {
  return call_of("ncclCommMemStats", handle, [&](FakeComm&, Lock&) {
    *value = stat == nccl::kMemoryPersistent ? FakeNccl::kPersistent : FakeNccl::kSuspendable;
    return kSuccess;
  });
}

}  // namespace

void add_memory(nccl::Table& table) {
  table.suspend = suspend;
  table.resume = resume;
  table.memory_stat = memory_stat;
}

}  // namespace altorch::fake_nccl
