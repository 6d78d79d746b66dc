// SPDX-License-Identifier: BSD-3-Clause
// What altorch needs of MPI, as a table of C functions that no MPI type leaks into.
//
// shim.c is compiled once per MPI ABI and implements the table by the real calls. A shim is not
// linked to MPI: the program dlopens an MPI library with RTLD_GLOBAL first, then the shim that fits
// it.
//
// Every function returns 0 or an MPI error code for error_string(). Handles are MPI's own, widened
// to intptr_t; a request of 0 means that nothing is in flight. Counts are elements of `type`.
#ifndef ALTORCH_TRANSPORTS_MPI_SHIM_TABLE_H_
#define ALTORCH_TRANSPORTS_MPI_SHIM_TABLE_H_

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

// Raise it with every change of the table: a shim of another build must be refused, not called.
#define ALTORCH_MPI_TABLE_VERSION 5
#define ALTORCH_MPI_TABLE_SYMBOL "altorch_mpi_table"

typedef enum {
  ALTORCH_MPI_UINT8,
  ALTORCH_MPI_INT8,
  ALTORCH_MPI_UINT16,
  ALTORCH_MPI_INT16,
  ALTORCH_MPI_UINT32,
  ALTORCH_MPI_INT32,
  ALTORCH_MPI_UINT64,
  ALTORCH_MPI_INT64,
  ALTORCH_MPI_FLOAT32,
  ALTORCH_MPI_FLOAT64,
  ALTORCH_MPI_COMPLEX64,
  ALTORCH_MPI_COMPLEX128
} AltorchMpiType;

typedef enum {
  ALTORCH_MPI_SUM,
  ALTORCH_MPI_PRODUCT,
  ALTORCH_MPI_MIN,
  ALTORCH_MPI_MAX,
  ALTORCH_MPI_BAND,
  ALTORCH_MPI_BOR,
  ALTORCH_MPI_BXOR
} AltorchMpiOp;

typedef enum {
  ALTORCH_MPI_THREAD_SINGLE,
  ALTORCH_MPI_THREAD_FUNNELED,
  ALTORCH_MPI_THREAD_SERIALIZED,
  ALTORCH_MPI_THREAD_MULTIPLE
} AltorchMpiThread;

typedef struct {
  int done;
  int source;     // receives: rank of the sender
  int64_t bytes;  // receives: what came
  int cancelled;
  int truncated;  // the message was larger than the buffer
} AltorchMpiTest;

typedef struct {
  int version;      // ALTORCH_MPI_TABLE_VERSION
  const char* abi;  // "mpich", "openmpi", "abi"

  // Before and after the life of MPI.
  int (*library_version)(char* text, int capacity);
  int (*initialized)(int* flag);
  int (*finalized)(int* flag);
  int (*init_thread)(int required, int* provided);
  int (*query_thread)(int* provided);
  int (*finalize)(void);
  int (*abort)(int exit_code);
  void (*error_string)(int error, char* text, int capacity);

  // Communicators. Every one made here returns errors instead of aborting.
  intptr_t (*comm_world)(void);
  int (*return_errors)(intptr_t comm);
  int (*comm_rank)(intptr_t comm, int* rank);
  int (*comm_size)(intptr_t comm, int* size);
  int (*tag_upper_bound)(int64_t* bound);
  // A copy of `comm`, made without blocking: *storage must stay in place until the request is done,
  // and holds the communicator once comm_adopt has turned it into a handle.
  int (*comm_idup)(intptr_t comm, intptr_t* storage, intptr_t* request);
  int (*comm_adopt)(intptr_t* storage);
  // Blocks until all members have come.
  int (*comm_create_group)(int count, const int* world_ranks, int tag, intptr_t* comm);
  int (*comm_free)(intptr_t* comm);

  // Messages, in bytes. A source of -1 is any source.
  int (*isend)(const void* data, int bytes, int peer, int tag, intptr_t comm, intptr_t* request);
  int (*irecv)(void* data, int bytes, int peer, int tag, intptr_t comm, intptr_t* request);
  // Whether a message with this tag (-1: any) from any rank has arrived, and its source.
  int (*iprobe_any)(int tag, intptr_t comm, int* found, int* source);
  // Frees the request when it is done and sets it to 0.
  int (*test)(intptr_t* request, AltorchMpiTest* result);
  int (*cancel)(intptr_t* request);

  // Collectives. `input` NULL stands for MPI_IN_PLACE where MPI allows it.
  int (*ibarrier)(intptr_t comm, intptr_t* request);
  int (*ibcast)(void* data, int count, int type, int root, intptr_t comm, intptr_t* request);
  int (*iallreduce)(const void* input, void* output, int count, int type, int op, intptr_t comm,
                    intptr_t* request);
  int (*ireduce)(const void* input, void* output, int count, int type, int op, int root, intptr_t comm,
                 intptr_t* request);
  int (*ireduce_scatter_block)(const void* input, void* output, int count, int type, int op, intptr_t comm,
                               intptr_t* request);
  int (*ireduce_scatter)(const void* input, void* output, const int* counts, int type, int op, intptr_t comm,
                         intptr_t* request);
  int (*iallgather)(const void* input, void* output, int count, int type, intptr_t comm, intptr_t* request);
  int (*iallgatherv)(const void* input, int count, void* output, const int* counts, const int* offsets,
                     int type, intptr_t comm, intptr_t* request);
  int (*ialltoall)(const void* input, void* output, int count, int type, intptr_t comm, intptr_t* request);
  int (*igatherv)(const void* input, int count, void* output, const int* counts, const int* offsets, int type,
                  int root, intptr_t comm, intptr_t* request);
  // `output` NULL stands for MPI_IN_PLACE on the root.
  int (*iscatterv)(const void* input, const int* counts, const int* offsets, void* output, int count,
                   int type, int root, intptr_t comm, intptr_t* request);

  // One-sided access. A window is one passive-target epoch to all ranks, from its creation to its
  // end. Offsets are in bytes. win_create and win_free block until all ranks have come. `unified`:
  // what other ranks write is visible in memory.
  int (*win_create)(void* memory, int64_t bytes, intptr_t comm, intptr_t* window, int* unified);
  int (*win_free)(intptr_t* window);
  // Each begins an access, which is done when flush() returns; rget and rget_accumulate are also
  // done when their request is.
  int (*put)(const void* data, int bytes, int peer, int64_t offset, intptr_t window);
  int (*rget)(void* data, int bytes, int peer, int64_t offset, intptr_t window, intptr_t* request);
  int (*accumulate)(const void* data, int count, int type, int op, int peer, int64_t offset, intptr_t window);
  int (*rget_accumulate)(const void* data, void* found, int count, int type, int op, int peer, int64_t offset,
                         intptr_t window, intptr_t* request);
  int (*compare_and_swap)(const void* data, const void* expected, void* found, int type, int peer,
                          int64_t offset, intptr_t window);
  int (*flush)(int peer, intptr_t window);
  int (*win_sync)(intptr_t window);
} AltorchMpiTable;

// What the functions of one-sided access call, which an old MPI may lack.
#define ALTORCH_MPI_ONE_SIDED_SYMBOLS                                                   \
  {                                                                                     \
    "MPI_Win_create", "MPI_Win_set_errhandler", "MPI_Win_get_attr", "MPI_Win_lock_all", \
        "MPI_Win_unlock_all", "MPI_Win_free", "MPI_Put", "MPI_Rget", "MPI_Accumulate",  \
        "MPI_Rget_accumulate", "MPI_Compare_and_swap", "MPI_Win_flush", "MPI_Win_sync"  \
  }

#ifdef __cplusplus
}
#endif

#endif  // ALTORCH_TRANSPORTS_MPI_SHIM_TABLE_H_
