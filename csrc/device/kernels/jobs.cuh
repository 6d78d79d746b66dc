// SPDX-License-Identifier: BSD-3-Clause
// The arguments of the kernels: the host fills one in, and the launch copies it to the GPU. Both
// sides compile this file. It is the beginning of the source that NVRTC gets, which knows no
// header.
#ifndef ALTORCH_DEVICE_KERNELS_JOBS
#define ALTORCH_DEVICE_KERNELS_JOBS

// Each side has its own names for the same numbers: <cstdint> says `long`, CUDA's atomic functions
// want `long long`.
#ifdef __CUDACC__
namespace altorch::kernels {
using i64 = long long;
using u64 = unsigned long long;
using Byte = unsigned char;
}  // namespace altorch::kernels
#else
#include <cstddef>
#include <cstdint>
namespace altorch::kernels {
using i64 = std::int64_t;
using u64 = std::uint64_t;
using Byte = std::byte;
}  // namespace altorch::kernels
#endif

namespace altorch {

static_assert(sizeof(kernels::i64) == 8 && alignof(kernels::i64) == 8 && sizeof(kernels::Byte) == 1);

// One reduction of parts that lie in device or pinned memory, in the order of the ranks.
struct DeviceReduction {
  static constexpr int kMaxParts = 64;
  const void* parts[kMaxParts];
  int number = 0;          // of parts, at least 1
  void* output = nullptr;  // may be one of the parts; null: not wanted
  void* copy = nullptr;    // the result once more; null: not wanted
  kernels::i64 count = 0;  // elements
  int scaled = -1;         // PREMUL_SUM: the part that is multiplied with `factor` before; -1: none
  double factor = 1.0;
};

// One small collective in one kernel per rank, by the LL protocol: see kernels/ll.cuh. An element
// of a move is a byte. A word has 8 bytes, of which 4 are data. A slot is where one rank writes for
// another rank, or for all ranks. It has a half for even exchanges and a half for odd ones, and
// each half has a region for each thread block.
struct LlExchange {
  static constexpr int kMostBlocks = 64;  // all blocks of a kernel that waits must run at once

  kernels::u64* send_slots[DeviceReduction::kMaxParts];  // this rank's: one for all ranks, or by rank
  const kernels::u64* receive_slots[DeviceReduction::kMaxParts];  // by rank, its slot for this rank
  unsigned* numbers = nullptr;        // of the last exchange, by block; this rank's, on its device
  const unsigned* aborted = nullptr;  // not 0: the call is aborted
  const void* input = nullptr;
  void* output = nullptr;
  kernels::i64 half = 0, region = 0;  // words of a slot: for an exchange; of those, for a block
  kernels::i64 count = 0;             // elements for a slot, and from a slot
  kernels::i64 stride = 0;            // from the elements of a slot to those of the next; 0: the same for all
  kernels::i64 own = 0;               // elements in front of this rank's part of what is reduced
  int sends_data = 1;                 // 0: this rank sends a word without data
  int receiver = -1;                  // the only rank that gets the data; -1: all
  int wants = 1;                      // 0: this rank has no result
  int first = 0, behind = 0;          // the parts that are moved: those of ranks first <= rank < behind
  int rank = 0, number = 0;
  int send_slot_count = 1;  // 1, or the number of ranks, without this one's
  int scaled = 0;           // 1: this rank's part is multiplied with `factor`
  int blocks = 1;           // the same on every rank
  double factor = 1.0;
  kernels::u64 poison = ~kernels::u64{0};  // stands in the result where a part has not come (poison_of())
};

// A small all_reduce of rows of floating-point numbers, and the RMS norm after it, in one kernel:
// see kernels/ll_norm.cuh. The exchange's output gets the rows divided by their root mean square.
struct NormedSum {
  LlExchange exchange;             // regions hold the rows of a block
  const void* residual = nullptr;  // is added to the sum
  const void* weight = nullptr;    // of a row, multiplies the divided row; null: none
  void* summed = nullptr;          // sum and residual; may be the residual
  kernels::i64 row = 1;            // elements, whole words of 4 bytes; count is a multiple of it
  double epsilon = 0;              // is added to the mean square
};

// An exchange of blocks between this rank and other ranks, with slots as in LlExchange: see
// kernels/pairs.cuh.
struct PairExchange {
  static constexpr int kMost = 16;
  struct Pair {
    kernels::u64* send_slots = nullptr;    // this rank's slot for the peer
    const kernels::u64* theirs = nullptr;  // the peer's slot for this rank
    const void* input = nullptr;
    void* output = nullptr;
    unsigned* numbers = nullptr;   // as in LlExchange; null: this rank's block for itself
    unsigned sent = 0, taken = 0;  // bytes
    int blocks = 1;                // the same on both ranks
    int unused = 0;
  };
  Pair pairs[kMost];
  const unsigned* aborted = nullptr;       // not 0: the call is aborted
  kernels::u64 poison = ~kernels::u64{0};  // as in LlExchange
  kernels::i64 half = 0, region = 0;
  int number = 0;  // of pairs
  int reserved = 0;
};

// The slots of ranks for data of any size, in memory of their GPUs: see kernels/rounds.cuh. By
// rank; null for this rank itself, but for some flags. Flags, by block: data has arrived; then, but
// not for two-shot reductions: data has been pulled.
struct BulkSlots {
  static constexpr int kMostRanks = 16;
  static constexpr int kMostBlocks = 64;               // of one kind
  kernels::Byte* theirs[kMostRanks] = {};              // this rank's slots in their memory
  const kernels::Byte* mine[kMostRanks] = {};          // their slots here
  unsigned* raised[kMostRanks] = {};                   // this rank's flags, there
  const unsigned* awaited[kMostRanks] = {};            // theirs, here
  unsigned* numbers = nullptr;                         // of the last rounds, by block
  const unsigned* aborted = nullptr;                   // not 0: the call is aborted
  kernels::i64 part = 0;                               // bytes; the slots of a rank have 4 x blocks parts
  int rank = 0, number = 0, blocks = 0, reserved = 0;  // blocks: that there are slots for
};

// Two-shot reduction, in tiles: each rank reduces a share of every tile, and passes the result on.
struct TwoShotReduce {
  enum GoesTo { kAll = -1 };  // or a rank
  BulkSlots slots;
  const void* input = nullptr;
  void* output = nullptr;
  // In elements: of the vector; of a share, at most; from a rank's share to the next one's; from a
  // tile to the next.
  kernels::i64 count = 0, share = 0, stride = 0, step = 0;
  kernels::i64 tiles = 0;
  int goes_to = kAll, blocks = 0;
  int scaled = 0, reserved = 0;  // 1: this rank's part is multiplied with `factor`
  double factor = 1.0;
  kernels::u64 poison = ~kernels::u64{0};  // as in LlExchange
};

// One-shot reduction: each rank pulls its slice (a block, or everything) from all ranks and reduces
// it. It has flags of its own, and four counters per block (kernels/one_shot.cuh).
struct OneShotReduce {
  BulkSlots slots;
  const void* input = nullptr;
  void* output = nullptr;
  // In elements of the input, the same on every rank: what each rank gets; 0: nothing.
  kernels::i64 begins[BulkSlots::kMostRanks] = {}, counts[BulkSlots::kMostRanks] = {};
  kernels::i64 chunk = 0, longest = 0;  // what goes at once, at most a part; the largest of the counts
  int blocks = 0, scaled = 0;           // as in TwoShotReduce; so many push, and as many take
  double factor = 1.0;
  kernels::u64 poison = ~kernels::u64{0};  // as in LlExchange
};

// Pairwise exchange: blocks between this rank and each other rank, and its own block, in bytes.
// `chunk`: bytes that move at once, at most a part. Counters, by rank and block: what was pushed,
// what was pulled, and two more (kernels/exchange.cuh).
struct Exchange {
  BulkSlots slots;
  const void* input[BulkSlots::kMostRanks] = {};
  void* output[BulkSlots::kMostRanks] = {};
  kernels::i64 sent[BulkSlots::kMostRanks] = {}, taken[BulkSlots::kMostRanks] = {};
  kernels::i64 chunk_sent[BulkSlots::kMostRanks] = {}, chunk_taken[BulkSlots::kMostRanks] = {};
  int blocks_sent[BulkSlots::kMostRanks] = {}, blocks_taken[BulkSlots::kMostRanks] = {};
  kernels::u64 poison[BulkSlots::kMostRanks] = {};  // of what is taken, as in LlExchange
  int in_place[BulkSlots::kMostRanks] =
      {};  // 1: what is sent and what is taken are the same memory, all of it
};

// What a rank passed to altorch.ops.all_reduce_quantized: the same on all ranks of a call.
struct QuantizedHeader {
  kernels::i64 count = 0;  // elements
  unsigned kind = 0;       // type, code, sum or mean: backend/c10d/quantized.cpp
  unsigned unused = 0;
};

// Values in 8 bits, in chunks of `size` elements, a multiple of kUnit. A chunk is a header and then
// packs (kernels/quantized.cuh); chunks lie `stride` bytes apart. kQuantize: `input` becomes
// `number` chunks. kSum: `output` becomes the sum of all chunks, times `factor`. kDequantize: it
// becomes their values, one chunk behind the other.
struct QuantizedChunks {
  enum Step { kQuantize, kSum, kDequantize };
  static constexpr int kUnit = 840;  // values of 60 packs
  const void* input = nullptr;
  void* output = nullptr;
  void* chunks = nullptr;
  kernels::i64 count = 0, size = 0, stride = 0;  // count: elements of input or output
  int number = 0, step = kQuantize;
  float factor = 1.0f;
  int float8 = 0;  // 1: codes are float8_e4m3fn; 0: int8
  QuantizedHeader header;
};

// The slots of warps for the LL128 protocol: see kernels/ll128.cuh. By rank, with none for this
// rank. Only among linked GPUs (CudaDevice::links).
struct Ll128Slots {
  static constexpr int kMostRanks = 16;
  static constexpr int kMostBlocks = 88;
  static constexpr int kWarpsOfBlock = 16;
  // The threads of a block as the GPU runs it: if it has fewer than kThreads, so many more blocks
  // run.
  static constexpr int kThreads = 32 * kWarpsOfBlock, kFewestThreads = kThreads / 4;
  static constexpr kernels::i64 kBytesOfWarp = 8 << 10, kUnitBytes = 960;  // a warp's slots; a unit's data
  kernels::u64* theirs[kMostRanks] = {};              // this rank's slots in their memory
  const kernels::u64* mine[kMostRanks] = {};          // their slots here
  kernels::u64* numbers = nullptr;                    // of this rank's last rounds, by rank and warp
  const unsigned* aborted = nullptr;                  // not 0: the call is aborted
  int rank = 0, number = 0, warps = 0, reserved = 0;  // warps: that there are slots for
};

// As OneShotReduce, by LL128.
struct Ll128Reduce {
  Ll128Slots slots;
  const void* input = nullptr;
  void* output = nullptr;
  kernels::i64 begins[Ll128Slots::kMostRanks] = {}, counts[Ll128Slots::kMostRanks] = {};
  // How many units of Ll128Slots::kUnitBytes each of `counts` takes: see count_units().
  int units[Ll128Slots::kMostRanks] = {}, most_units = 0;
  static constexpr int kToAll = -1, kToNone = -2;
  // blocks: of Ll128Slots::kWarpsOfBlock warps, the same on every rank. threads: of a block as the
  // GPU runs it.
  int blocks = 1, threads = Ll128Slots::kThreads;
  // The rank that each rank pushes its reduced share to, or all ranks, or no rank. A receiving rank
  // stores the share of rank r at begins[r] of its output. Only among more than two ranks.
  int passed_to = kToNone, scaled = 0;
  double factor = 1.0;
  kernels::u64 poison = ~kernels::u64{0};  // as in LlExchange
};

// As Exchange, by LL128. blocks[r]: rank r uses the same number for this rank; 0: nothing moves
// between them.
struct Ll128Exchange {
  Ll128Slots slots;
  const void* input[Ll128Slots::kMostRanks] = {};
  void* output[Ll128Slots::kMostRanks] = {};
  kernels::i64 sent[Ll128Slots::kMostRanks] = {}, taken[Ll128Slots::kMostRanks] = {};
  int blocks[Ll128Slots::kMostRanks] = {};
  int threads = Ll128Slots::kThreads, reserved = 0;
  kernels::u64 poison[Ll128Slots::kMostRanks] = {};  // of what is taken, as in LlExchange
};

// The result of a call, which is overwritten if the call is aborted: see kernels/poison.cuh.
struct PoisonJob {
  void* data = nullptr;
  kernels::i64 bytes = 0;
  kernels::u64 pattern = 0;           // poison_of() its type
  const unsigned* aborted = nullptr;  // in device or pinned memory; not 0: the call was aborted
  // Not null: an aborted call holds the stream until this is not 0.
  const unsigned* released = nullptr;
};

// Copies within this rank's device memory: see kernels/copies.cuh. No destination overlaps another
// destination or a source.
struct BlockCopies {
  static constexpr int kMost = 64;
  struct Copy {
    const void* from = nullptr;
    void* to = nullptr;
    kernels::i64 bytes = 0;
  };
  Copy copies[kMost];
  int number = 0;
};

// A counter in device memory: see kernels/window.cuh.
struct WindowCount {
  unsigned number = 0, raising = 0;  // raising: a lock for the threads that raise it
};

// Moves rows of bytes to or from the memory of another rank, and signals after that.
struct WindowMove {
  const void* from = nullptr;
  void* to = nullptr;
  kernels::i64 row_bytes = 0, rows = 1;
  kernels::i64 from_stride = 0, to_stride = 0;  // bytes
  unsigned* raised = nullptr;       // set to `count` when it has been raised; null: there is no signal
  WindowCount* count = nullptr;     // null: atomic operations reach `raised`
  const unsigned* ended = nullptr;  // not 0: leave everything as it is
};

// A wait for one more signal than was taken before. It reports its end to the host. With `begun` it
// reports only if it takes long, and then its beginning, too.
struct WindowWait {
  const unsigned* raised = nullptr;
  WindowCount* taken = nullptr;
  WindowCount *begun = nullptr, *done = nullptr;           // begun: may be null
  unsigned *tells_begun = nullptr, *tells_done = nullptr;  // in pinned memory
  const unsigned* aborted = nullptr;                       // not 0: the wait is aborted,
  void* data = nullptr;                                    // and overwrites the data it waits for
  kernels::i64 bytes = 0;
  kernels::u64 pattern = 0;
};

// Elements that are combined with those of another rank, each one atomically.
struct WindowUpdate {
  const void* from = nullptr;
  void* to = nullptr;
  kernels::i64 row = 0, rows = 1, stride = 0;  // elements; those of `from` lie in one block
  const unsigned* ended = nullptr;
};

// A fetch-and-add, or a compare-and-swap, on a number of 4 or 8 bytes.
struct WindowNumber {
  void* at = nullptr;
  kernels::i64 operand = 0, expected = 0;
  kernels::i64* found = nullptr;  // in pinned memory, as what follows: 1 when it is there
  unsigned* answered = nullptr;
  const unsigned* ended = nullptr;
  int bytes = 8, adds = 0;
};

}  // namespace altorch

#ifndef __CUDACC__
#include "device/kernels/token_jobs.cuh"
#endif

#endif
