// SPDX-License-Identifier: BSD-3-Clause
// What every host call of the fake NCCL does before and after its own affair.
#pragma once

#include <algorithm>
#include <string>

#include "support/fake_nccl_parts.h"

namespace altorch::fake_nccl {

using nccl::Comm;
using nccl::kSuccess;
using nccl::Result;
using Lock = std::unique_lock<std::mutex>;
inline constexpr Result kInternalError = 3, kInvalidArgument = 4, kInvalidUsage = 5;

// An error within a group is what the group ends with.
Result keep_for_group(Result result);

inline bool serves_suspended(const std::string& name) {
  return name == "ncclCommResume" || name == "ncclCommMemStats" || name == "ncclCommGetAsyncError";
}

// Runs `body` with the lock held, unless the call was told to fail or to hang.
template <typename Body>
Result call(const char* name, FakeComm* comm, int rank, Body&& body) {
  State& all = comm ? *comm->state : state();
  Lock lock(all.mutex);
  ++all.calls[name];
  const auto fault = std::find_if(all.faults.begin(), all.faults.end(), [&](const Fault& each) {
    return each.name == name && (each.rank == rank || each.rank < 0);
  });
  const bool is_abort = name == std::string("ncclCommAbort");
  if (comm && comm->ended) {
    all.misuse.push_back(std::string(name) + " of a communicator that is no more");
    return keep_for_group(kInvalidArgument);
  }
  if (comm && comm->suspended && !is_abort && !serves_suspended(name))
    all.misuse.push_back(std::string(name) + " of a suspended communicator");
  if (comm && comm->busy && !is_abort) all.misuse.push_back(std::string(name) + " beside another call");
  ++all.inside;
  if (comm && !is_abort) comm->busy = true;
  Result result = kSuccess;
  if (fault == all.faults.end()) {
    result = body(lock);
  } else {
    const bool hangs = fault->hangs;
    all.faults.erase(fault);
    if (hangs) all.wait(lock, comm, name, [] { return false; });
    result = kInternalError;
  }
  --all.inside;
  if (comm && !is_abort) comm->busy = false;
  all.changed.notify_all();
  return keep_for_group(result);
}

// As NCCL does, a call without a communicator is refused.
template <typename Body>
Result call_of(const char* name, Comm handle, Body&& body) {
  if (!handle) return keep_for_group(kInvalidArgument);
  FakeComm* comm = static_cast<FakeComm*>(handle);
  return call(name, comm, comm->rank, [&](Lock& lock) { return body(*comm, lock); });
}

// Each of these knows a part of the table.
void add_communicators(nccl::Table& table);
void add_buffers(nccl::Table& table);
void add_memory(nccl::Table& table);
void add_operations(nccl::Table& table);
void add_one_sided(nccl::Table& table);

}  // namespace altorch::fake_nccl
