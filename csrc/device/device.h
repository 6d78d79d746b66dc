// What the engine asks of a GPU beyond NCCL: copies, reductions and stream-ordered flags. Everything is
// enqueued on a stream and the host goes on at once. One interface for CUDA (cuda_device.h) and for the fake
// one on which the state machines are proved without a GPU (tests/cpp/support/fake_device.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "common/dtype.h"
#include "common/flag.h"
#include "common/reduce_op.h"

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

// One small collective among ranks that share pinned memory: see kernels/small.cuh. Elements of moves are
// bytes.
struct SmallExchange {
  std::uint64_t* areas[DeviceReduction::kMaxParts];  // by rank, those of this exchange
  const std::uint32_t* aborted = nullptr;            // not 0: give up
  const void* input = nullptr;
  void* output = nullptr;
  std::int64_t posted = 0;    // elements that this rank posts
  std::int64_t wanted = 0;    // elements of the output, or of one block of it; 0: none
  std::int64_t skipped = 0;   // elements in front of those wanted, in every part that is reduced
  int first = 0, behind = 0;  // the parts that are moved: those of ranks first <= rank < behind
  int rank = 0, number = 0;
  std::uint32_t exchange = 0;  // never 0, and twice the same only after all numbers between
  int scaled = 0;              // 1: this rank's part is multiplied with `factor`
  double factor = 1.0;
  std::uint64_t poison = ~std::uint64_t{0};  // stands in the result where a part has not come (poison_of())
};

// Blocks between this rank and others that share pinned memory: see kernels/pairs.cuh.
struct PairExchange {
  static constexpr int kMost = 16;
  struct Pair {
    std::uint64_t* posts = nullptr;         // this rank's words for the peer, of this exchange
    const std::uint64_t* theirs = nullptr;  // the peer's for this rank
    const void* input = nullptr;
    void* output = nullptr;
    std::uint32_t sent = 0, taken = 0;  // bytes
    std::uint32_t exchange = 0;         // of this pair, as in SmallExchange; 0: this rank's block for itself
    std::uint32_t unused = 0;
  };
  Pair pairs[kMost];
  const std::uint32_t* aborted = nullptr;    // not 0: give up
  std::uint64_t poison = ~std::uint64_t{0};  // as in SmallExchange
  int number = 0;                            // of pairs
  int reserved = 0;
};

// The result of a call, to be overwritten if the call is given up: see kernels/poison.cuh.
struct PoisonJob {
  void* data = nullptr;
  std::int64_t bytes = 0;
  std::uint64_t pattern = 0;                // poison_of() its type
  const std::uint32_t* given_up = nullptr;  // in memory of the device, or pinned; not 0: the call was
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
  // Memory of the device, for as long as the result lives. Throws Error(kUnsupported) as pin() does.
  virtual DeviceMemory allocate(std::size_t bytes) = 0;
  // A high-priority stream that lives as long as the device.
  virtual Stream make_stream() = 0;

  virtual void copy_to_host(void* host, const void* device, std::size_t bytes, Stream stream) = 0;
  virtual void copy_to_device(void* device, const void* host, std::size_t bytes, Stream stream) = 0;
  virtual void copy_on_device(void* to, const void* from, std::size_t bytes, Stream stream) = 0;

  // Loads what reduce() or reduce_small() will run, before the streams hold anything that waits for other
  // ranks: loading may wait for them.
  virtual void prepare(DType dtype, ReduceOp op, bool small) = 0;
  virtual void prepare_small_moves() = 0;
  // Semantics of combine() in reduction/reduce.h.
  virtual void reduce(const DeviceReduction& reduction, DType dtype, ReduceOp op, Stream stream) = 0;

  // All wait in a kernel for other ranks, whose GPUs must be others.
  virtual void reduce_small(const SmallExchange& exchange, DType dtype, ReduceOp op, Stream stream) = 0;
  virtual void move_small(const SmallExchange& exchange, Stream stream) = 0;
  virtual void exchange_pairs(const PairExchange& exchange, Stream stream) = 0;

  // Overwrites a result if its call was given up. Prepared as the others, and before a graph is captured.
  virtual void prepare_poison() = 0;
  virtual void poison(const PoisonJob& job, Stream stream) = 0;

  // What `stream` gets from now on comes after what `other` holds now.
  virtual void wait_for_stream(Stream stream, Stream other) = 0;
  // Raises a flag in pinned memory, or in the device's own, after what the stream holds; host and GPU see
  // what was written before.
  virtual void raise(Flag& flag, std::uint32_t value, Stream stream) = 0;
  // Holds the stream up until the flag in pinned memory is raised, by whomever.
  virtual void wait_for_flag(const Flag& flag, std::uint32_t value, Stream stream) = 0;
};

}  // namespace altorch
