// SPDX-License-Identifier: BSD-3-Clause
// The same operations called from C: what MPI itself costs, without torch.
//
//   mpiexec -n 2 mpi_floor <mode> <seconds a case> <operations, comma separated> <bytes, comma separated>
//
// mode "blocking" calls MPI_Allreduce and so on; mode "test" posts the non-blocking form and tests
// it, giving the core away every 20 tests, which is how a caller that must not block waits. Prints
// one JSON line per case, in the words of python/altorch/bench/rows.py: float32 SUM, bytes of the
// larger buffer, the slowest rank of each batch.
#include <mpi.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { kMostBuffers = 16, kMostBatches = 60, kFewestBatches = 5, kMostCalls = 200 };
static const double kBatchSeconds = 0.004;

static int rank, size, testing;
static int buffer_count, share, count;
static float *large[kMostBuffers], *second[kMostBuffers];

static void fail(const char* what) {
  fprintf(stderr, "mpi_floor: %s\n", what);
  MPI_Abort(MPI_COMM_WORLD, 1);
}

static void finish(MPI_Request* request) {
  int done = 0;
  for (int tests = 1; !done; ++tests) {
    MPI_Test(request, &done, MPI_STATUS_IGNORE);
    if (!done && tests % 20 == 0) sched_yield();
  }
}

// Either the blocking call or its non-blocking form and the wait for it.
#define RUN(blocking, posted) \
  do {                        \
    if (testing) {            \
      MPI_Request request;    \
      posted;                 \
      finish(&request);       \
    } else {                  \
      blocking;               \
    }                         \
  } while (0)

static void run_all_reduce(int i) {
  RUN(MPI_Allreduce(MPI_IN_PLACE, large[i], count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD),
      MPI_Iallreduce(MPI_IN_PLACE, large[i], count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD, &request));
}
static void run_all_gather(int i) {
  RUN(MPI_Allgather(second[i], share, MPI_FLOAT, large[i], share, MPI_FLOAT, MPI_COMM_WORLD),
      MPI_Iallgather(second[i], share, MPI_FLOAT, large[i], share, MPI_FLOAT, MPI_COMM_WORLD, &request));
}
static void run_reduce_scatter(int i) {
  RUN(MPI_Reduce_scatter_block(large[i], second[i], share, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD),
      MPI_Ireduce_scatter_block(large[i], second[i], share, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD, &request));
}
static void run_all_to_all(int i) {
  RUN(MPI_Alltoall(large[i], share, MPI_FLOAT, second[i], share, MPI_FLOAT, MPI_COMM_WORLD),
      MPI_Ialltoall(large[i], share, MPI_FLOAT, second[i], share, MPI_FLOAT, MPI_COMM_WORLD, &request));
}
static int broadcast_root;
static void run_broadcast(int i) {
  const int root = broadcast_root++ % size;
  RUN(MPI_Bcast(large[i], count, MPI_FLOAT, root, MPI_COMM_WORLD),
      MPI_Ibcast(large[i], count, MPI_FLOAT, root, MPI_COMM_WORLD, &request));
}
static void run_send(int i, int peer) {
  RUN(MPI_Send(large[i], count, MPI_FLOAT, peer, 0, MPI_COMM_WORLD),
      MPI_Isend(large[i], count, MPI_FLOAT, peer, 0, MPI_COMM_WORLD, &request));
}
static void run_receive(int i, int peer) {
  RUN(MPI_Recv(second[i], count, MPI_FLOAT, peer, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE),
      MPI_Irecv(second[i], count, MPI_FLOAT, peer, 0, MPI_COMM_WORLD, &request));
}
static void run_send_recv(int i) {
  const int peer = rank ^ 1;
  if (peer >= size) return;
  if (rank < peer) {
    run_send(i, peer);
    run_receive(i, peer);
  } else {
    run_receive(i, peer);
    run_send(i, peer);
  }
}
static void run_barrier(int i) {
  (void)i;
  RUN(MPI_Barrier(MPI_COMM_WORLD), MPI_Ibarrier(MPI_COMM_WORLD, &request));
}

struct Case {
  const char* name;
  void (*run)(int);
  int messages;  // that one call moves; figures are per message
};
static const struct Case cases[] = {
    {"all_reduce", run_all_reduce, 1},
    {"all_gather", run_all_gather, 1},
    {"reduce_scatter", run_reduce_scatter, 1},
    {"all_to_all", run_all_to_all, 1},
    {"broadcast", run_broadcast, 1},
    {"send_recv", run_send_recv, 2},
    {"barrier", run_barrier, 1},
};

static void dirty(int first, int calls) {
  for (int turn = first; turn < first + calls && turn < first + buffer_count; ++turn) {
    for (int j = 0; j < count; ++j) large[turn % buffer_count][j] = second[turn % buffer_count][j] = 1.0f;
  }
}

// Seconds a call; one call goes before the clock starts and brings the ranks together.
static double time_batch(const struct Case* c, int calls, int first) {
  c->run((first - 1) % buffer_count);
  const double begin = MPI_Wtime();
  for (int turn = first; turn < first + calls; ++turn) c->run(turn % buffer_count);
  return (MPI_Wtime() - begin) / calls;
}

static double slowest_of(double seconds) {
  double slowest;
  MPI_Request request;
  MPI_Iallreduce(&seconds, &slowest, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD, &request);
  finish(&request);
  return slowest;
}

static int by_value(const void* a, const void* b) {
  const double difference = *(const double*)a - *(const double*)b;
  return difference < 0 ? -1 : difference > 0;
}

static void measure(const struct Case* c, long bytes, double budget) {
  share = (int)((bytes + 4L * size - 1) / (4L * size));
  count = share * size;
  const long rotated = count == 0 ? kMostBuffers : (64L << 20) / (4L * count);
  buffer_count = rotated < 2 ? 2 : rotated > kMostBuffers ? kMostBuffers : (int)rotated;
  for (int i = 0; i < buffer_count; ++i) {
    large[i] = malloc(4L * count + 1);  // never of nothing
    second[i] = malloc(4L * count + 1);
    if (large[i] == NULL || second[i] == NULL) fail("out of memory");
  }
  dirty(0, buffer_count);
  const double one = slowest_of(time_batch(c, 2, 1));
  int calls = (int)(kBatchSeconds / one);
  calls = calls < 1 ? 1 : calls > kMostCalls ? kMostCalls : calls;
  int batches = (int)slowest_of(budget / (one * (calls + 1)));
  batches = batches < kFewestBatches ? kFewestBatches : batches > kMostBatches ? kMostBatches : batches;
  double seconds[kMostBatches];
  for (int batch = 0; batch < batches; ++batch) {
    dirty(batch * calls, calls + 1);
    slowest_of(0);
    seconds[batch] = time_batch(c, calls, 1 + batch * calls);
  }
  for (int batch = 0; batch < batches; ++batch) seconds[batch] = slowest_of(seconds[batch]);
  qsort(seconds, (size_t)batches, sizeof(seconds[0]), by_value);
  const double scale = 1e6 / c->messages;
  if (rank == 0) {
    printf(
        "{\"benchmark\": \"cpu_collectives\", \"operation\": \"%s\", \"dtype\": \"%s\", \"bytes\": %ld, "
        "\"ranks\": %d, \"device\": \"cpu\", \"contender\": \"mpi-%s\", \"mode\": \"sync\", "
        "\"calls_per_batch\": %d, \"batches\": %d, \"p10_us\": %.4f, \"median_us\": %.4f, \"max_us\": "
        "%.4f}\n",
        c->name, bytes == 0 ? "" : "float32", bytes == 0 ? 0 : 4L * count, size,
        testing ? "test" : "blocking", calls, batches, seconds[batches / 10] * scale,
        seconds[batches / 2] * scale, seconds[batches - 1] * scale);
    fflush(stdout);
  }
  for (int i = 0; i < buffer_count; ++i) {
    free(large[i]);
    free(second[i]);
  }
}

static int is_listed(const char* list, const char* name) {
  const size_t length = strlen(name);
  for (const char* at = strstr(list, name); at != NULL; at = strstr(at + 1, name)) {
    const int starts = at == list || at[-1] == ',';
    if (starts && (at[length] == ',' || at[length] == '\0')) return 1;
  }
  return 0;
}

int main(int argc, char** argv) {
  int provided;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_SERIALIZED, &provided);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  if (argc != 5) fail("usage: mpi_floor blocking|test seconds operations bytes");
  testing = strcmp(argv[1], "test") == 0;
  const double budget = atof(argv[2]);
  if (rank == 0) {
    char version[MPI_MAX_LIBRARY_VERSION_STRING];
    int length;
    MPI_Get_library_version(version, &length);
    version[strcspn(version, "\n\"\\")] = '\0';
    printf("{\"benchmark\": \"mpi_library\", \"version\": \"%s\"}\n", version);
  }
  const size_t case_count = sizeof(cases) / sizeof(cases[0]);
  if (is_listed(argv[3], "barrier")) measure(&cases[case_count - 1], 0, budget);
  // Sizes outside: what a deadline cuts off is the large ones.
  for (const char* at = argv[4]; at != NULL; at = strchr(at, ',') ? strchr(at, ',') + 1 : NULL) {
    for (size_t i = 0; i + 1 < case_count; ++i) {
      if (is_listed(argv[3], cases[i].name)) measure(&cases[i], atol(at), budget);
    }
  }
  MPI_Finalize();
  return 0;
}
