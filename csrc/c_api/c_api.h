// SPDX-License-Identifier: BSD-3-Clause
// The engine behind functions with C linkage: groups of CPU tensors of one node, without torch's
// headers. For a torch that no extension was built for; python/altorch/fallback/engine.py calls
// them through ctypes.
//
// Buffers are contiguous and stay alive until the call is done; counts are elements, times
// milliseconds. A function that fails returns 1 + ErrorKind (a pointer: null), and altorch_error()
// is its text, on the same thread, until the next call. Thread rules: any thread may call. All
// ranks make the calls of a group in the same order.
#pragma once

#include <stddef.h>
#include <stdint.h>

#define ALTORCH_C_API __attribute__((visibility("default")))

extern "C" {

// The store that the ranks meet in. Each function returns 0, or 1 if the store failed; they come
// from any thread.
struct altorch_store {
  int (*set)(const char* key, const char* data, size_t bytes);
  int (*set_once)(const char* key, const char* data, size_t bytes);  // sets nothing where the key exists
  int (*get)(const char* key,
             void* answer);  // calls altorch_answer(answer, ...) if the key exists; never waits
  int (*add)(const char* key, int64_t amount, int64_t* sum);
};
ALTORCH_C_API void altorch_answer(void* answer, const char* data, size_t bytes);

struct altorch_call {
  int kind, dtype, op;  // OpKind, DType (altorch_dtype), ReduceOp, whose numbers are torch's
  int root;             // or the peer of a message
  const void* input;
  void* output;
  int64_t count;
  const int64_t *input_counts, *output_counts;  // one for each rank, or null
  double factor;                                // of PREMUL_SUM
  int64_t tag, timeout_ms;
  const char* refused;  // why this rank cannot make the call, which its peers are told; or null
};

// The number of an element type or a kind by torch's name for it; -1: there is none.
ALTORCH_C_API int altorch_dtype(const char* name);
ALTORCH_C_API int altorch_kind(const char* name);
// 1 if `op` is defined for `dtype`.
ALTORCH_C_API int altorch_can_reduce(int dtype, int op);
ALTORCH_C_API const char* altorch_error();
// 1 + ErrorKind of this thread's last failed call, for the functions that return a pointer.
ALTORCH_C_API int altorch_error_code();
// Whether the buffers of this thread's last failed call may be released; 0: they stay for the life
// of the process.
ALTORCH_C_API int altorch_buffers_free();

// Collective: makes a group. `store` stays valid until altorch_stop(). `name` is for messages,
// `key`, of this name and these ranks, for the store. `global_ranks`: `size` of them. Of the job's
// first group `is_job` is 1.
ALTORCH_C_API void* altorch_join(const altorch_store* store, const char* name, const char* key, int rank,
                                 int size, const int* global_ranks, int is_job, int64_t timeout_ms);
// Runs a collective, and returns when it is done on this rank.
ALTORCH_C_API int altorch_run(void* group, const altorch_call* call);
// Starts a collective or a message, and returns its task. altorch_wait() returns -1 where
// `timeout_ms` passes first; 0: the call's own deadline counts.
ALTORCH_C_API void* altorch_start(void* group, const altorch_call* call);
ALTORCH_C_API int altorch_wait(void* group, void* task, int64_t timeout_ms);
ALTORCH_C_API int altorch_is_done(void* task);
ALTORCH_C_API void altorch_release(void* task);
// Calls under way fail, later calls raise. altorch_leave() frees the group, too.
ALTORCH_C_API void altorch_close(void* group, const char* why);
ALTORCH_C_API void altorch_leave(void* group);
// What the group has done with one operation on one route, on this rank.
struct altorch_stats_row {
  char operation[32], route[64];
  int64_t count, bytes;  // calls; of the tensors that were passed in
  double seconds;        // from start to completion, summed
};
// Fills in at most `capacity` rows. `count`: how many there are.
ALTORCH_C_API int altorch_stats(void* group, altorch_stats_row* rows, size_t capacity, size_t* count);
// Runs the program's signal handlers while a call waits on the main thread; 1: one has raised.
ALTORCH_C_API void altorch_set_signal_check(int (*raised)());
// At exit: no function of a store is called any more when it returns.
ALTORCH_C_API void altorch_stop();

}  // extern "C"
