// SPDX-License-Identifier: BSD-3-Clause
// The table of table.h over a real MPI. Compiled once per ABI:
//   -DALTORCH_MPI_ABI_NAME="mpich"    with MPICH's mpi.h (MPICH, Intel MPI, MVAPICH)
//   -DALTORCH_MPI_ABI_NAME="openmpi"  with Open MPI's mpi.h
//   -DALTORCH_MPI_ABI_NAME="abi"      with mpi_abi.h, the standard ABI of MPI 5
// Nothing here is linked to MPI: its symbols are bound when the shim is loaded, functions lazily,
// so that a library that lacks one of them still serves.
#define OMPI_SKIP_MPICXX 1
#define MPICH_SKIP_MPICXX 1
#ifdef ALTORCH_MPI_STANDARD_ABI
#include <mpi_abi.h>
#else
#include <mpi.h>
#endif

#include <stddef.h>
#include <string.h>

#include "transports/mpi/shim/table.h"

#define TO_COMM(handle) ((MPI_Comm)(handle))
#define FROM_COMM(comm) ((intptr_t)(comm))
#define FROM_REQUEST(request) ((request) == MPI_REQUEST_NULL ? 0 : (intptr_t)(request))

static MPI_Datatype to_type(int type) {
  switch (type) {
    case ALTORCH_MPI_UINT8:
      return MPI_UINT8_T;
    case ALTORCH_MPI_INT8:
      return MPI_INT8_T;
    case ALTORCH_MPI_UINT16:
      return MPI_UINT16_T;
    case ALTORCH_MPI_INT16:
      return MPI_INT16_T;
    case ALTORCH_MPI_UINT32:
      return MPI_UINT32_T;
    case ALTORCH_MPI_INT32:
      return MPI_INT32_T;
    case ALTORCH_MPI_UINT64:
      return MPI_UINT64_T;
    case ALTORCH_MPI_INT64:
      return MPI_INT64_T;
    case ALTORCH_MPI_FLOAT32:
      return MPI_FLOAT;
    case ALTORCH_MPI_FLOAT64:
      return MPI_DOUBLE;
    case ALTORCH_MPI_COMPLEX64:
      return MPI_C_FLOAT_COMPLEX;
    case ALTORCH_MPI_COMPLEX128:
      return MPI_C_DOUBLE_COMPLEX;
    default:
      return MPI_DATATYPE_NULL;
  }
}

static MPI_Op to_op(int op) {
  switch (op) {
    case ALTORCH_MPI_SUM:
      return MPI_SUM;
    case ALTORCH_MPI_PRODUCT:
      return MPI_PROD;
    case ALTORCH_MPI_MIN:
      return MPI_MIN;
    case ALTORCH_MPI_MAX:
      return MPI_MAX;
    case ALTORCH_MPI_BAND:
      return MPI_BAND;
    case ALTORCH_MPI_BOR:
      return MPI_BOR;
    case ALTORCH_MPI_BXOR:
      return MPI_BXOR;
    default:
      return MPI_OP_NULL;
  }
}

// The numbers behind MPI's thread levels differ between ABIs.
static int from_level(int level) {
  if (level == MPI_THREAD_MULTIPLE) return ALTORCH_MPI_THREAD_MULTIPLE;
  if (level == MPI_THREAD_SERIALIZED) return ALTORCH_MPI_THREAD_SERIALIZED;
  if (level == MPI_THREAD_FUNNELED) return ALTORCH_MPI_THREAD_FUNNELED;
  return ALTORCH_MPI_THREAD_SINGLE;
}

static int to_level(int level) {
  switch (level) {
    case ALTORCH_MPI_THREAD_MULTIPLE:
      return MPI_THREAD_MULTIPLE;
    case ALTORCH_MPI_THREAD_SERIALIZED:
      return MPI_THREAD_SERIALIZED;
    case ALTORCH_MPI_THREAD_FUNNELED:
      return MPI_THREAD_FUNNELED;
    default:
      return MPI_THREAD_SINGLE;
  }
}

static int posted(int error, MPI_Request request, intptr_t* out) {
  *out = error == MPI_SUCCESS ? FROM_REQUEST(request) : 0;
  return error;
}

static int library_version(char* text, int capacity) {
  char buffer[MPI_MAX_LIBRARY_VERSION_STRING > 8192 ? MPI_MAX_LIBRARY_VERSION_STRING : 8192] = {0};
  int length = 0;
  int error = MPI_Get_library_version(buffer, &length);
  strncpy(text, buffer, (size_t)capacity - 1);
  text[capacity - 1] = '\0';
  return error;
}

static int initialized(int* flag) { return MPI_Initialized(flag); }
static int finalized(int* flag) { return MPI_Finalized(flag); }

static int init_thread(int required, int* provided) {
  int level = MPI_THREAD_SINGLE;
  int error = MPI_Init_thread(NULL, NULL, to_level(required), &level);
  *provided = from_level(level);
  return error;
}

static int query_thread(int* provided) {
  int level = MPI_THREAD_SINGLE;
  int error = MPI_Query_thread(&level);
  *provided = from_level(level);
  return error;
}

static int finalize(void) { return MPI_Finalize(); }
static int abort_world(int exit_code) { return MPI_Abort(MPI_COMM_WORLD, exit_code); }

static void error_string(int error, char* text, int capacity) {
  char buffer[MPI_MAX_ERROR_STRING > 2048 ? MPI_MAX_ERROR_STRING : 2048] = {0};
  int length = 0;
  if (MPI_Error_string(error, buffer, &length) != MPI_SUCCESS) strcpy(buffer, "unknown MPI error");
  strncpy(text, buffer, (size_t)capacity - 1);
  text[capacity - 1] = '\0';
}

static intptr_t comm_world(void) { return FROM_COMM(MPI_COMM_WORLD); }
static int return_errors(intptr_t comm) { return MPI_Comm_set_errhandler(TO_COMM(comm), MPI_ERRORS_RETURN); }
static int comm_rank(intptr_t comm, int* rank) { return MPI_Comm_rank(TO_COMM(comm), rank); }
static int comm_size(intptr_t comm, int* size) { return MPI_Comm_size(TO_COMM(comm), size); }

static int tag_upper_bound(int64_t* bound) {
  int* value = NULL;
  int found = 0;
  int error = MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_TAG_UB, &value, &found);
  *bound = error == MPI_SUCCESS && found && value != NULL ? *value : 32767;  // MPI's guaranteed minimum
  return error;
}

static int comm_create_group(int count, const int* world_ranks, int tag, intptr_t* out) {
  MPI_Group world = MPI_GROUP_NULL;
  MPI_Group group = MPI_GROUP_NULL;
  MPI_Comm comm = MPI_COMM_NULL;
  int error = MPI_Comm_group(MPI_COMM_WORLD, &world);
  if (error == MPI_SUCCESS) error = MPI_Group_incl(world, count, world_ranks, &group);
  if (error == MPI_SUCCESS) error = MPI_Comm_create_group(MPI_COMM_WORLD, group, tag, &comm);
  if (error == MPI_SUCCESS) error = MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
  if (group != MPI_GROUP_NULL) MPI_Group_free(&group);
  if (world != MPI_GROUP_NULL) MPI_Group_free(&world);
  *out = FROM_COMM(comm);
  return error;
}

// Handles are ints or pointers: either fits into the storage, and only adopt knows which it was.
static int comm_idup(intptr_t handle, intptr_t* storage, intptr_t* out) {
  MPI_Request request = MPI_REQUEST_NULL;
  *storage = 0;
  int error = MPI_Comm_idup(TO_COMM(handle), (MPI_Comm*)storage, &request);
  return posted(error, request, out);
}

static int comm_adopt(intptr_t* storage) {
  MPI_Comm comm = *(MPI_Comm*)storage;
  *storage = FROM_COMM(comm);
  return MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
}

static int comm_free(intptr_t* handle) {
  MPI_Comm comm = TO_COMM(*handle);
  *handle = 0;
  return MPI_Comm_free(&comm);
}

#define POST(call)                          \
  do {                                      \
    MPI_Request request = MPI_REQUEST_NULL; \
    int error = (call);                     \
    return posted(error, request, out);     \
  } while (0)

static int isend(const void* data, int bytes, int peer, int tag, intptr_t comm, intptr_t* out) {
  POST(MPI_Isend(data, bytes, MPI_BYTE, peer, tag, TO_COMM(comm), &request));
}

static int irecv(void* data, int bytes, int peer, int tag, intptr_t comm, intptr_t* out) {
  POST(MPI_Irecv(data, bytes, MPI_BYTE, peer < 0 ? MPI_ANY_SOURCE : peer, tag, TO_COMM(comm), &request));
}

static int iprobe_any(int tag, intptr_t comm, int* found, int* source) {
  MPI_Status status;
  int error = MPI_Iprobe(MPI_ANY_SOURCE, tag < 0 ? MPI_ANY_TAG : tag, TO_COMM(comm), found, &status);
  if (error == MPI_SUCCESS && *found) *source = status.MPI_SOURCE;
  return error;
}

static int test(intptr_t* handle, AltorchMpiTest* result) {
  MPI_Request request = (MPI_Request)*handle;
  MPI_Status status;
  int error = MPI_Test(&request, &result->done, &status);
  if (error != MPI_SUCCESS) {
    int class_of = MPI_SUCCESS;
    MPI_Error_class(error, &class_of);
    result->done = 1;
    result->truncated = class_of == MPI_ERR_TRUNCATE;
    result->source = -1;
    // A failed request counts as finished: MPI has freed it, or it must not be touched again.
    *handle = 0;
    return error;
  }
  if (!result->done) return MPI_SUCCESS;
  int bytes = 0;
  *handle = 0;
  result->truncated = 0;
  result->source = status.MPI_SOURCE;
  MPI_Test_cancelled(&status, &result->cancelled);
  if (!result->cancelled && MPI_Get_count(&status, MPI_BYTE, &bytes) == MPI_SUCCESS &&
      bytes != MPI_UNDEFINED) {
    result->bytes = bytes;
  } else {
    result->bytes = 0;
  }
  return MPI_SUCCESS;
}

static int cancel(intptr_t* handle) {
  MPI_Request request = (MPI_Request)*handle;
  return MPI_Cancel(&request);
}

#define IN_PLACE_OR(buffer) ((buffer) == NULL ? MPI_IN_PLACE : (buffer))

static int ibarrier(intptr_t comm, intptr_t* out) { POST(MPI_Ibarrier(TO_COMM(comm), &request)); }

static int ibcast(void* data, int count, int type, int root, intptr_t comm, intptr_t* out) {
  POST(MPI_Ibcast(data, count, to_type(type), root, TO_COMM(comm), &request));
}

static int iallreduce(const void* input, void* output, int count, int type, int op, intptr_t comm,
                      intptr_t* out) {
  POST(MPI_Iallreduce(IN_PLACE_OR(input), output, count, to_type(type), to_op(op), TO_COMM(comm), &request));
}

static int ireduce(const void* input, void* output, int count, int type, int op, int root, intptr_t comm,
                   intptr_t* out) {
  POST(MPI_Ireduce(IN_PLACE_OR(input), output, count, to_type(type), to_op(op), root, TO_COMM(comm),
                   &request));
}

static int ireduce_scatter_block(const void* input, void* output, int count, int type, int op, intptr_t comm,
                                 intptr_t* out) {
  POST(MPI_Ireduce_scatter_block(input, output, count, to_type(type), to_op(op), TO_COMM(comm), &request));
}

static int ireduce_scatter(const void* input, void* output, const int* counts, int type, int op,
                           intptr_t comm, intptr_t* out) {
  POST(MPI_Ireduce_scatter(input, output, counts, to_type(type), to_op(op), TO_COMM(comm), &request));
}

static int iallgather(const void* input, void* output, int count, int type, intptr_t comm, intptr_t* out) {
  POST(MPI_Iallgather(IN_PLACE_OR(input), count, to_type(type), output, count, to_type(type), TO_COMM(comm),
                      &request));
}

static int iallgatherv(const void* input, int count, void* output, const int* counts, const int* offsets,
                       int type, intptr_t comm, intptr_t* out) {
  POST(MPI_Iallgatherv(IN_PLACE_OR(input), count, to_type(type), output, counts, offsets, to_type(type),
                       TO_COMM(comm), &request));
}

static int ialltoall(const void* input, void* output, int count, int type, intptr_t comm, intptr_t* out) {
  POST(MPI_Ialltoall(input, count, to_type(type), output, count, to_type(type), TO_COMM(comm), &request));
}

static int igatherv(const void* input, int count, void* output, const int* counts, const int* offsets,
                    int type, int root, intptr_t comm, intptr_t* out) {
  POST(MPI_Igatherv(IN_PLACE_OR(input), count, to_type(type), output, counts, offsets, to_type(type), root,
                    TO_COMM(comm), &request));
}

static int iscatterv(const void* input, const int* counts, const int* offsets, void* output, int count,
                     int type, int root, intptr_t comm, intptr_t* out) {
  POST(MPI_Iscatterv(input, counts, offsets, to_type(type), IN_PLACE_OR(output), count, to_type(type), root,
                     TO_COMM(comm), &request));
}

#define TO_WIN(handle) ((MPI_Win)(handle))
#define FROM_WIN(win) ((intptr_t)(win))

static int win_create(void* memory, int64_t bytes, intptr_t comm, intptr_t* out, int* unified) {
  MPI_Win win = MPI_WIN_NULL;
  int* model = NULL;
  int found = 0;
  *out = 0;
  *unified = 0;
  int error = MPI_Win_create(memory, (MPI_Aint)bytes, 1, MPI_INFO_NULL, TO_COMM(comm), &win);
  if (error != MPI_SUCCESS) return error;
  error = MPI_Win_set_errhandler(win, MPI_ERRORS_RETURN);
  if (error == MPI_SUCCESS) error = MPI_Win_get_attr(win, MPI_WIN_MODEL, &model, &found);
  if (error == MPI_SUCCESS && found && model != NULL) *unified = *model == MPI_WIN_UNIFIED;
  // No other code locks this window, so MPI need not look for conflicting locks.
  if (error == MPI_SUCCESS) error = MPI_Win_lock_all(MPI_MODE_NOCHECK, win);
  *out = FROM_WIN(win);
  return error;
}

static int win_free(intptr_t* handle) {
  MPI_Win win = TO_WIN(*handle);
  *handle = 0;
  int error = MPI_Win_unlock_all(win);
  return error == MPI_SUCCESS ? MPI_Win_free(&win) : error;
}

static int put(const void* data, int bytes, int peer, int64_t offset, intptr_t window) {
  return MPI_Put(data, bytes, MPI_BYTE, peer, (MPI_Aint)offset, bytes, MPI_BYTE, TO_WIN(window));
}

static int rget(void* data, int bytes, int peer, int64_t offset, intptr_t window, intptr_t* out) {
  POST(MPI_Rget(data, bytes, MPI_BYTE, peer, (MPI_Aint)offset, bytes, MPI_BYTE, TO_WIN(window), &request));
}

static int accumulate(const void* data, int count, int type, int op, int peer, int64_t offset,
                      intptr_t window) {
  return MPI_Accumulate(data, count, to_type(type), peer, (MPI_Aint)offset, count, to_type(type), to_op(op),
                        TO_WIN(window));
}

static int rget_accumulate(const void* data, void* result, int count, int type, int op, int peer,
                           int64_t offset, intptr_t window, intptr_t* out) {
  POST(MPI_Rget_accumulate(data, count, to_type(type), result, count, to_type(type), peer, (MPI_Aint)offset,
                           count, to_type(type), to_op(op), TO_WIN(window), &request));
}

static int compare_and_swap(const void* data, const void* expected, void* result, int type, int peer,
                            int64_t offset, intptr_t window) {
  return MPI_Compare_and_swap(data, expected, result, to_type(type), peer, (MPI_Aint)offset, TO_WIN(window));
}

static int flush(int peer, intptr_t window) { return MPI_Win_flush(peer, TO_WIN(window)); }
static int win_sync(intptr_t window) { return MPI_Win_sync(TO_WIN(window)); }

__attribute__((visibility("default"))) const AltorchMpiTable altorch_mpi_table = {
    .version = ALTORCH_MPI_TABLE_VERSION,
    .abi = ALTORCH_MPI_ABI_NAME,
    .library_version = library_version,
    .initialized = initialized,
    .finalized = finalized,
    .init_thread = init_thread,
    .query_thread = query_thread,
    .finalize = finalize,
    .abort = abort_world,
    .error_string = error_string,
    .comm_world = comm_world,
    .return_errors = return_errors,
    .comm_rank = comm_rank,
    .comm_size = comm_size,
    .tag_upper_bound = tag_upper_bound,
    .comm_idup = comm_idup,
    .comm_adopt = comm_adopt,
    .comm_create_group = comm_create_group,
    .comm_free = comm_free,
    .isend = isend,
    .irecv = irecv,
    .iprobe_any = iprobe_any,
    .test = test,
    .cancel = cancel,
    .ibarrier = ibarrier,
    .ibcast = ibcast,
    .iallreduce = iallreduce,
    .ireduce = ireduce,
    .ireduce_scatter_block = ireduce_scatter_block,
    .ireduce_scatter = ireduce_scatter,
    .iallgather = iallgather,
    .iallgatherv = iallgatherv,
    .ialltoall = ialltoall,
    .igatherv = igatherv,
    .iscatterv = iscatterv,
    .win_create = win_create,
    .win_free = win_free,
    .put = put,
    .rget = rget,
    .accumulate = accumulate,
    .rget_accumulate = rget_accumulate,
    .compare_and_swap = compare_and_swap,
    .flush = flush,
    .win_sync = win_sync,
};
