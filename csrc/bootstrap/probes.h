// SPDX-License-Identifier: BSD-3-Clause
// What this machine allows: questions whose answers decide how MPI may be started.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>

namespace altorch {

// Processes with equal keys can share memory as an MPI expects it of ranks on one node: same
// kernel, same process and IPC namespaces, same /dev/shm, same user. The key has neither spaces nor
// newlines. ALTORCH_TEST_NODE adds to it, so that a test can split one machine into several nodes.
std::string same_node_key();

// Bytes free in /dev/shm; 0 when there is none.
std::uint64_t free_shared_memory();

// What keeps any MPI library from starting in this process, as a sentence; empty where nothing
// does. MPICH and UCX hang or abort on these, so they are asked for first.
std::string mpi_unsupported_reason();

// A word in this process, for others to read with can_read_memory(). Constant over the life of the
// process.
struct MemoryProbe {
  pid_t process = 0;
  std::uint64_t address = 0;
  std::uint64_t value = 0;
};
MemoryProbe own_memory_probe();
// Whether cross-memory attach (process_vm_readv) works on that process. Containers without
// SYS_PTRACE and yama/ptrace_scope >= 1 refuse it.
bool can_read_memory(const MemoryProbe& probe);

// The network interface and local IP address on the route to a host; both empty when the host does
// not resolve.
struct RouteToHost {
  std::string interface;
  std::string address;
  bool is_loopback = false;
};
RouteToHost route_to(const std::string& host);

}  // namespace altorch
