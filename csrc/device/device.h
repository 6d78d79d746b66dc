// SPDX-License-Identifier: BSD-3-Clause
// What the engine asks of a GPU beyond NCCL: copies, reductions and stream-ordered flags. Everything is
// enqueued on a stream and the host goes on at once. One interface for CUDA (cuda_device.h) and for the fake
// one on which the state machines are proved without a GPU (tests/cpp/support/fake_device.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "base/dtype.h"
#include "base/flag.h"
#include "base/reduce_op.h"
#include "platform/descriptor.h"

namespace altorch {

using Stream = void*;  // cudaStream_t

// Host memory that the GPU reads and writes itself, at the same address. Zero at first.
using PinnedMemory = std::shared_ptr<std::byte>;
using DeviceMemory = std::shared_ptr<std::byte>;

// One reduction of parts that lie in device or pinned memory, in the order of the ranks.
struct DeviceReduction {
  static constexpr int kMaxParts = 64;
  const void* parts[kMaxParts];
  int number = 0;          // of parts, at least 1
  void* output = nullptr;  // may be one of the parts; null: not wanted
  void* copy = nullptr;    // the result once more; null: not wanted
  std::int64_t count = 0;  // elements
  int scaled = -1;         // PREMUL_SUM: the part that is multiplied with `factor` before; -1: none
  double factor = 1.0;
};

// One small collective in one kernel per rank, by the LL protocol: see kernels/ll.cuh. An element of a move is a
// byte. A word has 8 bytes, of which 4 are data. A slot is where one rank writes for another rank, or for all ranks. It
// has a half for even exchanges and a half for odd ones, and each half has a region for each thread block.
struct LlExchange {
  static constexpr int kMostBlocks = 64;  // all blocks of a kernel that waits must run at once

  std::uint64_t* send_slots[DeviceReduction::kMaxParts];  // this rank's: one for all ranks, or by rank
  const std::uint64_t* receive_slots[DeviceReduction::kMaxParts];  // by rank, its slot for this rank
  std::uint32_t* numbers = nullptr;        // of the last exchange, by block; this rank's, on its device
  const std::uint32_t* aborted = nullptr;  // not 0: the call is aborted
  const void* input = nullptr;
  void* output = nullptr;
  std::int64_t half = 0, region = 0;  // words of a slot: for an exchange; of those, for a block
  std::int64_t count = 0;             // elements for a slot, and from a slot
  std::int64_t stride = 0;            // from the elements of a slot to those of the next; 0: the same for all
  std::int64_t own = 0;               // elements in front of this rank's part of what is reduced
  int sends_data = 1;                 // 0: this rank sends a word without data
  int receiver = -1;                  // the only rank that gets the data; -1: all
  int wants = 1;                      // 0: this rank has no result
  int first = 0, behind = 0;          // the parts that are moved: those of ranks first <= rank < behind
  int rank = 0, number = 0;
  int send_slot_count = 1;  // 1, or the number of ranks, without this one's
  int scaled = 0;           // 1: this rank's part is multiplied with `factor`
  int blocks = 1;           // the same on every rank
  double factor = 1.0;
  std::uint64_t poison = ~std::uint64_t{0};  // stands in the result where a part has not come (poison_of())
};

// A small all_reduce of rows of floating-point numbers, and the RMS norm after it, in one kernel: see
// kernels/ll_norm.cuh. The exchange's output gets the rows divided by their root mean square.
struct NormedSum {
  LlExchange exchange;             // regions hold the rows of a block
  const void* residual = nullptr;  // is added to the sum
  const void* weight = nullptr;    // of a row, multiplies the divided row; null: none
  void* summed = nullptr;          // sum and residual; may be the residual
  std::int64_t row = 1;            // elements, whole words of 4 bytes; count is a multiple of it
  double epsilon = 0;              // is added to the mean square
};

// An exchange of blocks between this rank and other ranks, with slots as in LlExchange: see kernels/pairs.cuh.
struct PairExchange {
  static constexpr int kMost = 16;
  struct Pair {
    std::uint64_t* send_slots = nullptr;    // this rank's slot for the peer
    const std::uint64_t* theirs = nullptr;  // the peer's slot for this rank
    const void* input = nullptr;
    void* output = nullptr;
    std::uint32_t* numbers = nullptr;   // as in LlExchange; null: this rank's block for itself
    std::uint32_t sent = 0, taken = 0;  // bytes
    int blocks = 1;                     // the same on both ranks
    int unused = 0;
  };
  Pair pairs[kMost];
  const std::uint32_t* aborted = nullptr;    // not 0: the call is aborted
  std::uint64_t poison = ~std::uint64_t{0};  // as in LlExchange
  std::int64_t half = 0, region = 0;
  int number = 0;  // of pairs
  int reserved = 0;
};

// The slots of ranks for data of any size, in memory of their GPUs: see kernels/rounds.cuh. By rank; null for this rank itself,
// but for some flags. Flags, by block: data has arrived; then, but not for two-shot reductions: data has been pulled.
struct BulkSlots {
  static constexpr int kMostRanks = 16;
  static constexpr int kMostBlocks = 64;               // of one kind
  std::byte* theirs[kMostRanks] = {};                  // this rank's slots in their memory
  const std::byte* mine[kMostRanks] = {};              // their slots here
  std::uint32_t* raised[kMostRanks] = {};              // this rank's flags, there
  const std::uint32_t* awaited[kMostRanks] = {};       // theirs, here
  std::uint32_t* numbers = nullptr;                    // of the last rounds, by block
  const std::uint32_t* aborted = nullptr;              // not 0: the call is aborted
  std::int64_t part = 0;                               // bytes; the slots of a rank have 4 x blocks parts
  int rank = 0, number = 0, blocks = 0, reserved = 0;  // blocks: that there are slots for
};

// Two-shot reduction, in tiles: each rank reduces a share of every tile, and passes the result on.
struct TwoShotReduce {
  enum GoesTo { kAll = -1 };  // or a rank
  BulkSlots slots;
  const void* input = nullptr;
  void* output = nullptr;
  // In elements: of the vector; of a share, at most; from a rank's share to the next one's; from a tile to the next.
  std::int64_t count = 0, share = 0, stride = 0, step = 0;
  std::int64_t tiles = 0;
  int goes_to = kAll, blocks = 0;
  int scaled = 0, reserved = 0;  // 1: this rank's part is multiplied with `factor`
  double factor = 1.0;
  std::uint64_t poison = ~std::uint64_t{0};  // as in LlExchange
};

// One-shot reduction: each rank pulls its slice (a block, or everything) from all ranks and reduces it. It has flags of its own,
// and four counters per block (kernels/one_shot.cuh).
struct OneShotReduce {
  BulkSlots slots;
  const void* input = nullptr;
  void* output = nullptr;
  // In elements of the input, the same on every rank: what each rank gets; 0: nothing.
  std::int64_t begins[BulkSlots::kMostRanks] = {}, counts[BulkSlots::kMostRanks] = {};
  std::int64_t chunk = 0, longest = 0;  // what goes at once, at most a part; the largest of the counts
  int blocks = 0, scaled = 0;           // as in TwoShotReduce; so many push, and as many take
  double factor = 1.0;
  std::uint64_t poison = ~std::uint64_t{0};  // as in LlExchange
};

// Pairwise exchange: blocks between this rank and each other rank, and its own block, in bytes. `chunk`: bytes that move at once,
// at most a part. Counters, by rank and block: what was pushed, what was pulled, and two more (kernels/exchange.cuh).
struct Exchange {
  BulkSlots slots;
  const void* input[BulkSlots::kMostRanks] = {};
  void* output[BulkSlots::kMostRanks] = {};
  std::int64_t sent[BulkSlots::kMostRanks] = {}, taken[BulkSlots::kMostRanks] = {};
  std::int64_t chunk_sent[BulkSlots::kMostRanks] = {}, chunk_taken[BulkSlots::kMostRanks] = {};
  int blocks_sent[BulkSlots::kMostRanks] = {}, blocks_taken[BulkSlots::kMostRanks] = {};
  std::uint64_t poison[BulkSlots::kMostRanks] = {};  // of what is taken, as in LlExchange
  int in_place[BulkSlots::kMostRanks] =
      {};  // 1: what is sent and what is taken are the same memory, all of it
};

// The slots of warps for the LL128 protocol: see kernels/ll128.cuh. By rank, with none for this rank. Only among linked GPUs
// (CudaDevice::links).
struct Ll128Slots {
  static constexpr int kMostRanks = 16;
  static constexpr int kMostBlocks = 72;  // with a unit for each warp they hold 1 MiB of data
  static constexpr int kWarpsOfBlock = 16;
  // The threads of a block as the GPU runs it: if it has fewer than kThreads, so many more blocks run.
  static constexpr int kThreads = 32 * kWarpsOfBlock, kFewestThreads = kThreads / 4;
  static constexpr std::int64_t kBytesOfWarp = 8 << 10, kUnitBytes = 960;  // a warp's slots; a unit's data
  std::uint64_t* theirs[kMostRanks] = {};             // this rank's slots in their memory
  const std::uint64_t* mine[kMostRanks] = {};         // their slots here
  std::uint64_t* numbers = nullptr;                   // of this rank's last rounds, by rank and warp
  const std::uint32_t* aborted = nullptr;             // not 0: the call is aborted
  int rank = 0, number = 0, warps = 0, reserved = 0;  // warps: that there are slots for
};

// As OneShotReduce, by LL128.
struct Ll128Reduce {
  Ll128Slots slots;
  const void* input = nullptr;
  void* output = nullptr;
  std::int64_t begins[Ll128Slots::kMostRanks] = {}, counts[Ll128Slots::kMostRanks] = {};
  // How many units of Ll128Slots::kUnitBytes each of `counts` takes: see count_units().
  int units[Ll128Slots::kMostRanks] = {}, most_units = 0;
  static constexpr int kToAll = -1, kToNone = -2;
  // blocks: of Ll128Slots::kWarpsOfBlock warps, the same on every rank. threads: of a block as the GPU runs it.
  int blocks = 1, threads = Ll128Slots::kThreads;
  // The rank that each rank pushes its reduced share to, or all ranks, or no rank. A receiving rank stores the share
  // of rank r at begins[r] of its output. Only among more than two ranks.
  int passed_to = kToNone, scaled = 0;
  double factor = 1.0;
  std::uint64_t poison = ~std::uint64_t{0};  // as in LlExchange
  void count_units(std::int64_t element) {
    for (int rank = 0; rank < slots.number; ++rank) {
      units[rank] =
          static_cast<int>((counts[rank] * element + Ll128Slots::kUnitBytes - 1) / Ll128Slots::kUnitBytes);
      if (units[rank] > most_units) most_units = units[rank];
    }
  }
};

// As Exchange, by LL128. blocks[r]: rank r uses the same number for this rank; 0: nothing moves between them.
struct Ll128Exchange {
  Ll128Slots slots;
  const void* input[Ll128Slots::kMostRanks] = {};
  void* output[Ll128Slots::kMostRanks] = {};
  std::int64_t sent[Ll128Slots::kMostRanks] = {}, taken[Ll128Slots::kMostRanks] = {};
  int blocks[Ll128Slots::kMostRanks] = {};
  int threads = Ll128Slots::kThreads, reserved = 0;
  std::uint64_t poison[Ll128Slots::kMostRanks] = {};  // of what is taken, as in LlExchange
};

// The result of a call, which is overwritten if the call is aborted: see kernels/poison.cuh.
struct PoisonJob {
  void* data = nullptr;
  std::int64_t bytes = 0;
  std::uint64_t pattern = 0;               // poison_of() its type
  const std::uint32_t* aborted = nullptr;  // in device or pinned memory; not 0: the call was aborted
};

// A counter in device memory: see kernels/window.cuh.
struct WindowCount {
  std::uint32_t number = 0, raising = 0;
};

// Moves rows of bytes to or from the memory of another rank, and signals after that.
struct WindowMove {
  const void* from = nullptr;
  void* to = nullptr;
  std::int64_t row_bytes = 0, rows = 1;
  std::int64_t from_stride = 0, to_stride = 0;  // bytes
  std::uint32_t* raised = nullptr;  // set to `count` when it has been raised; null: there is no signal
  WindowCount* count = nullptr;
  const std::uint32_t* ended = nullptr;  // not 0: leave everything as it is
};

// A wait for one more signal than was taken before. It reports its end to the host. With `begun` it reports only if
// it takes long, and then its beginning, too.
struct WindowWait {
  const std::uint32_t* raised = nullptr;
  WindowCount* taken = nullptr;
  WindowCount *begun = nullptr, *done = nullptr;                // begun: may be null
  std::uint32_t *tells_begun = nullptr, *tells_done = nullptr;  // in pinned memory
  const std::uint32_t* aborted = nullptr;                       // not 0: the wait is aborted,
  void* data = nullptr;                                         // and overwrites the data it waits for
  std::int64_t bytes = 0;
  std::uint64_t pattern = 0;
};

// Elements that are combined with those of another rank, each one atomically.
struct WindowUpdate {
  const void* from = nullptr;
  void* to = nullptr;
  std::int64_t row = 0, rows = 1, stride = 0;  // elements; those of `from` lie in one block
  const std::uint32_t* ended = nullptr;
};

// A fetch-and-add, or a compare-and-swap, on a number of 4 or 8 bytes.
struct WindowNumber {
  void* at = nullptr;
  std::int64_t operand = 0, expected = 0;
  std::int64_t* found = nullptr;  // in pinned memory, as what follows: 1 when it is there
  std::uint32_t* answered = nullptr;
  const std::uint32_t* ended = nullptr;
  int bytes = 8, adds = 0;
};

// One per user. Streams and memory belong to the device's current context. Every member throws
// Error(kTransport) that names the call that failed. Thread rules: one thread at a time.
class Device {
 public:
  virtual ~Device() = default;

  // Throws Error(kUnsupported) with the reason where no more can be had.
  virtual PinnedMemory pin(std::size_t bytes) = 0;
  // Pins memory that exists already, for as long as the result lives.
  virtual PinnedMemory pin(std::shared_ptr<std::byte> memory, std::size_t bytes) = 0;
  // Memory of the device, zero at first, for as long as the result lives. Throws Error(kUnsupported) as pin() does.
  virtual DeviceMemory allocate(std::size_t bytes) = 0;
  // Memory of the device that other processes can map, zero at first, and a descriptor of it. Throws
  // Error(kUnsupported).
  struct Exported {
    DeviceMemory memory;
    Descriptor descriptor;
  };
  virtual Exported export_memory(std::size_t bytes) = 0;
  // Memory of another rank's device, of its descriptor. It stays valid when that rank ends. Throws
  // Error(kUnsupported).
  virtual DeviceMemory import_memory(const Descriptor& descriptor, std::size_t bytes) = 0;
  // A high-priority stream that lives as long as the device.
  virtual Stream make_stream() = 0;

  virtual void copy_to_host(void* host, const void* device, std::size_t bytes, Stream stream) = 0;
  virtual void copy_to_device(void* device, const void* host, std::size_t bytes, Stream stream) = 0;
  virtual void copy_on_device(void* to, const void* from, std::size_t bytes, Stream stream) = 0;

  // Loads the kernels of reduce(), reduce_ll(), reduce_two_shot(), reduce_one_shot(), update_window(),
  // reduce_ll128() or sum_and_norm(). Call it before the streams hold anything that waits for other ranks: loading
  // may wait for the streams.
  enum Reducing { kParts, kLl, kTwoShot, kOneShot, kUpdate, kLl128, kNorm };
  static constexpr int kReducings = 7;
  virtual void prepare(DType dtype, ReduceOp op, Reducing what) = 0;
  virtual void prepare_ll_moves() = 0;
  virtual void prepare_exchange() = 0;
  // Semantics of combine() in reduction/reduce.h.
  virtual void reduce(const DeviceReduction& reduction, DType dtype, ReduceOp op, Stream stream) = 0;

  // The kernels of all these calls wait for other ranks: a GPU that several ranks share must run their kernels at the
  // same time.
  virtual void reduce_ll(const LlExchange& exchange, DType dtype, ReduceOp op, Stream stream) = 0;
  virtual void move_ll(const LlExchange& exchange, Stream stream) = 0;
  virtual void sum_and_norm(const NormedSum& job, DType dtype, Stream stream) = 0;
  virtual void exchange_pairs(const PairExchange& exchange, Stream stream) = 0;
  virtual void reduce_two_shot(const TwoShotReduce& job, DType dtype, ReduceOp op, Stream stream) = 0;
  virtual void reduce_one_shot(const OneShotReduce& job, DType dtype, ReduceOp op, Stream stream) = 0;
  virtual void exchange(const Exchange& job, Stream stream) = 0;
  virtual void reduce_ll128(const Ll128Reduce& job, DType dtype, ReduceOp op, Stream stream) = 0;
  virtual void exchange_ll128(const Ll128Exchange& job, Stream stream) = 0;

  // One-sided access. Only await_window() waits for other ranks. A move with a signal runs in one thread block.
  virtual void prepare_windows() = 0;
  virtual void move_window(const WindowMove& job, Stream stream) = 0;
  virtual void await_window(const WindowWait& job, Stream stream) = 0;
  virtual void update_window(const WindowUpdate& job, DType dtype, ReduceOp op, Stream stream) = 0;
  virtual void change_number(const WindowNumber& job, Stream stream) = 0;

  // Overwrites a result if its call was aborted. Call prepare_poison() early, as the others, and before a graph is
  // captured.
  virtual void prepare_poison() = 0;
  virtual void poison(const PoisonJob& job, Stream stream) = 0;

  // What `stream` gets from now on comes after what `other` holds now.
  virtual void wait_for_stream(Stream stream, Stream other) = 0;
  // Raises a flag in pinned memory, or in the device's own, after what the stream holds; host and GPU see
  // what was written before.
  virtual void raise(Flag& flag, std::uint32_t value, Stream stream) = 0;
  // Holds the stream up until the host or a GPU raises the flag in pinned memory.
  virtual void wait_for_flag(const Flag& flag, std::uint32_t value, Stream stream) = 0;
};

}  // namespace altorch
