// SPDX-License-Identifier: BSD-3-Clause
// The part of NVSHMEM's host API that altorch calls, declared as NVSHMEM's documentation does.
// altorch neither links to the library nor needs its headers to build. The library comes with
// torch.
//
// NVSHMEM reports most failures by ending the process. So the caller first checks, on all ranks,
// everything that could make a call fail (windows/nvshmem_window.cpp).
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>

namespace altorch::nvshmem {

inline constexpr int kSuccess = 0;
inline constexpr int kOutOfMemory = 2;            // NVSHMEMX_ERROR_OUT_OF_MEMORY
inline constexpr int kInitialized = 2;            // NVSHMEM_STATUS_IS_INITIALIZED
inline constexpr int kSharedGpus = 4;             // NVSHMEM_STATUS_FULL_MPG: by MPS
inline constexpr unsigned kInitWithUniqueId = 8;  // NVSHMEMX_INIT_WITH_UNIQUEID
inline constexpr int kSignalAdd = 10;             // NVSHMEM_SIGNAL_ADD
inline constexpr int kGreaterOrEqual = 5;         // NVSHMEM_CMP_GE

// Each struct begins with a version: (1 << 16) + sizeof the struct.
struct UniqueId {
  int version = (1 << 16) + 128;
  char internal[124] = {};
};
struct UniqueIdArguments {
  int version = (1 << 16) + 24;
  UniqueId* id = nullptr;
  int rank = 0, ranks = 0;
};
struct InitArguments {
  int version = (1 << 16) + 128;
  UniqueIdArguments unique_id;
  char content[96] = {};
};
struct InitAttributes {
  int version = (1 << 16) + 144;
  void* mpi_comm = nullptr;
  InitArguments arguments;
};
static_assert(sizeof(UniqueId) == 128 && sizeof(UniqueIdArguments) == 24 && sizeof(InitArguments) == 128 &&
              sizeof(InitAttributes) == 144);

// One row per function: its name in the table, its name in the library, its result, its arguments.
#define ALTORCH_NVSHMEM_FUNCTIONS(X)                                                                       \
  X(get_unique_id, "nvshmemx_get_uniqueid", int, (UniqueId * id))                                          \
  X(set_unique_id, "nvshmemx_set_attr_uniqueid_args", int,                                                 \
    (int rank, int ranks, const UniqueId* id, InitAttributes* attributes))                                 \
  X(init, "nvshmemx_hostlib_init_attr", int, (unsigned flags, InitAttributes* attributes))                 \
  X(init_status, "nvshmemx_init_status", int, ())                                                          \
  X(allocate, "nvshmem_calloc", void*, (std::size_t count, std::size_t bytes))                             \
  X(add_buffer, "nvshmemx_buffer_register_symmetric", void*, (void* memory, std::size_t bytes, int flags)) \
  X(mapped, "nvshmem_ptr", void*, (const void* symmetric, int rank))                                       \
  X(put, "nvshmemx_putmem_on_stream", void,                                                                \
    (void* to, const void* from, std::size_t bytes, int rank, void* stream))                               \
  X(get, "nvshmemx_getmem_on_stream", void,                                                                \
    (void* to, const void* from, std::size_t bytes, int rank, void* stream))                               \
  X(put_signal, "nvshmemx_putmem_signal_on_stream", void,                                                  \
    (void* to, const void* from, std::size_t bytes, std::uint64_t* signal, std::uint64_t value, int op,    \
     int rank, void* stream))                                                                              \
  X(signal, "nvshmemx_signal_op_on_stream", void,                                                          \
    (std::uint64_t * signal, std::uint64_t value, int op, int rank, void* stream))                         \
  X(wait_signal, "nvshmemx_signal_wait_until_on_stream", void,                                             \
    (std::uint64_t * signal, int comparison, std::uint64_t value, void* stream))                           \
  X(quiet, "nvshmemx_quiet_on_stream", void, (void* stream))

// Functions with a state, because the tests' fake has a table for each rank.
struct Table {
#define ALTORCH_NVSHMEM_MEMBER(name, symbol, result, arguments) std::function<result arguments> name;
  ALTORCH_NVSHMEM_FUNCTIONS(ALTORCH_NVSHMEM_MEMBER)
#undef ALTORCH_NVSHMEM_MEMBER
  std::function<int(int)> set_device;  // of the CUDA runtime
};

// Loads the library: the copy that torch has loaded, else the one beside torch's CUDA runtime or
// that the system finds. Throws Error(kUnsupported) with the reason. Thread rules: any thread.
Table load_library();

}  // namespace altorch::nvshmem
