// SPDX-License-Identifier: BSD-3-Clause
// What altorch uses of NCCL's C interface, declared after NCCL's documentation, so that one build
// serves every NCCL from 2.18 on: nothing is linked, and no header of NCCL is needed to build.
#pragma once

#include <cstddef>
#include <cstdint>

namespace altorch::nccl {

using Comm = void*;
using Stream = void*;  // cudaStream_t
using Result = int;    // ncclResult_t
inline constexpr Result kSuccess = 0;
inline constexpr Result kInProgress = 7;

struct UniqueId {
  char internal[128];
};

// ncclDataType_t
enum Type : int {
  kInt8 = 0,
  kUint8 = 1,
  kInt32 = 2,
  kUint32 = 3,
  kInt64 = 4,
  kUint64 = 5,
  kFloat16 = 6,
  kFloat32 = 7,
  kFloat64 = 8,
  kBfloat16 = 9,
};
// ncclRedOp_t; what ncclRedOpCreatePreMulSum makes are further numbers.
enum Op : int { kSum = 0, kProd = 1, kMax = 2, kMin = 3, kAvg = 4 };
inline constexpr int kScalarHostImmediate = 1;

// ncclConfig_t as of 2.18. NCCL knows a caller's older layout by `size` and `version`.
struct Config {
  std::size_t size = sizeof(Config);
  unsigned magic = 0xcafebeef;
  unsigned version = 21800;
  int blocking = kUndefined;
  int cga_cluster_size = kUndefined;
  int min_ctas = kUndefined;
  int max_ctas = kUndefined;
  const char* net_name = nullptr;
  int split_share = kUndefined;

  static constexpr int kUndefined = -2147483647 - 1;
};

inline constexpr int kNoColor = -1;         // NCCL_SPLIT_NOCOLOR
inline constexpr int kSymmetricWindow = 1;  // NCCL_WIN_COLL_SYMMETRIC
inline constexpr int kSuspendMemory = 1;    // NCCL_SUSPEND_MEM
// ncclCommMemStat_t, of a communicator's memory on the GPU, in bytes.
enum MemoryStat : int { kMemorySuspendable = 0, kMemoryPersistent = 2 };
inline constexpr std::size_t kWindowAlignment = 4096;  // NCCL_WIN_REQUIRED_ALIGNMENT

// ncclWaitSignalDesc_t: so many signals of a peer.
struct AwaitedSignals {
  int count, peer;
  int index, context;  // which of several signals; up to 2.31 there is but the first
};

// One row per function: its name in the table, its name in the library, its arguments.
#define ALTORCH_NCCL_FUNCTIONS(X)                                                                          \
  X(get_version, "ncclGetVersion", (int* version))                                                         \
  X(get_unique_id, "ncclGetUniqueId", (UniqueId * id))                                                     \
  X(init_rank, "ncclCommInitRankConfig", (Comm * comm, int size, UniqueId id, int rank, Config* config))   \
  X(split, "ncclCommSplit", (Comm comm, int color, int key, Comm* part, Config* config))                   \
  X(finalize, "ncclCommFinalize", (Comm comm))                                                             \
  X(destroy, "ncclCommDestroy", (Comm comm))                                                               \
  X(abort, "ncclCommAbort", (Comm comm))                                                                   \
  X(async_error, "ncclCommGetAsyncError", (Comm comm, Result * error))                                     \
  X(group_start, "ncclGroupStart", ())                                                                     \
  X(group_end, "ncclGroupEnd", ())                                                                         \
  X(all_reduce, "ncclAllReduce",                                                                           \
    (const void* input, void* output, std::size_t count, int type, int op, Comm comm, Stream stream))      \
  X(reduce, "ncclReduce",                                                                                  \
    (const void* input, void* output, std::size_t count, int type, int op, int root, Comm comm,            \
     Stream stream))                                                                                       \
  X(broadcast, "ncclBroadcast",                                                                            \
    (const void* input, void* output, std::size_t count, int type, int root, Comm comm, Stream stream))    \
  X(all_gather, "ncclAllGather",                                                                           \
    (const void* input, void* output, std::size_t count, int type, Comm comm, Stream stream))              \
  X(reduce_scatter, "ncclReduceScatter",                                                                   \
    (const void* input, void* output, std::size_t count, int type, int op, Comm comm, Stream stream))      \
  X(send, "ncclSend", (const void* data, std::size_t count, int type, int peer, Comm comm, Stream stream)) \
  X(receive, "ncclRecv", (void* data, std::size_t count, int type, int peer, Comm comm, Stream stream))    \
  X(create_premul_sum, "ncclRedOpCreatePreMulSum",                                                         \
    (int* op, void* scalar, int type, int residence, Comm comm))                                           \
  X(destroy_op, "ncclRedOpDestroy", (int op, Comm comm))

// Those that only newer ones have; null where the loaded NCCL does not.
#define ALTORCH_NCCL_NEWER_FUNCTIONS(X)                                                                    \
  X(allocate, "ncclMemAlloc", (void** memory, std::size_t bytes))                                          \
  X(release, "ncclMemFree", (void* memory))                                                                \
  X(add_buffer, "ncclCommRegister", (Comm comm, void* buffer, std::size_t bytes, void** handle))           \
  X(remove_buffer, "ncclCommDeregister", (Comm comm, void* handle))                                        \
  X(add_window, "ncclCommWindowRegister",                                                                  \
    (Comm comm, void* buffer, std::size_t bytes, void** window, int flags))                                \
  X(remove_window, "ncclCommWindowDeregister", (Comm comm, void* window))                                  \
  X(all_to_all, "ncclAlltoAll",                                                                            \
    (const void* input, void* output, std::size_t count, int type, Comm comm, Stream stream))              \
  X(suspend, "ncclCommSuspend", (Comm comm, int flags))                                                    \
  X(resume, "ncclCommResume", (Comm comm))                                                                 \
  X(memory_stat, "ncclCommMemStats", (Comm comm, int stat, std::uint64_t* value))                          \
  X(put_signal, "ncclPutSignal",                                                                           \
    (const void* data, std::size_t count, int type, int peer, void* window, std::size_t offset, int index, \
     int context, unsigned flags, Comm comm, Stream stream))                                               \
  X(signal, "ncclSignal", (int peer, int index, int context, unsigned flags, Comm comm, Stream stream))    \
  X(wait_signal, "ncclWaitSignal", (int descriptors, AwaitedSignals* signals, Comm comm, Stream stream))

struct Table {
#define ALTORCH_NCCL_MEMBER(name, symbol, arguments) Result(*name) arguments = nullptr;
  ALTORCH_NCCL_FUNCTIONS(ALTORCH_NCCL_MEMBER)
  ALTORCH_NCCL_NEWER_FUNCTIONS(ALTORCH_NCCL_MEMBER)
#undef ALTORCH_NCCL_MEMBER
  int (*set_device)(int) = nullptr;  // of the CUDA runtime
  const char* (*error_string)(Result) = nullptr;
  const char* (*last_error)(Comm) = nullptr;
};

}  // namespace altorch::nccl
