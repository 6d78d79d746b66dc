// SPDX-License-Identifier: BSD-3-Clause
// What the engine asks of a GPU beyond NCCL: copies, reductions and stream-ordered flags.
// Everything is enqueued on a stream and the host goes on at once. One interface for CUDA
// (cuda_device.h) and for the fake one on which the state machines are proved without a GPU
// (tests/cpp/support/fake_device.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "base/dtype.h"
#include "base/flag.h"
#include "base/reduce_op.h"
#include "device/kernels/jobs.cuh"
#include "platform/descriptor.h"

namespace altorch {

using Stream = void*;  // cudaStream_t

// Host memory that the GPU reads and writes itself, at the same address. Zero at first.
using PinnedMemory = std::shared_ptr<std::byte>;
using DeviceMemory = std::shared_ptr<std::byte>;

// Sets how many units each of `counts` takes. `unit`: elements in one.
inline void count_units(Ll128Reduce& job, std::int64_t unit) {
  for (int rank = 0; rank < job.slots.number; ++rank) {
    job.units[rank] = static_cast<int>((job.counts[rank] + unit - 1) / unit);
    if (job.units[rank] > job.most_units) job.most_units = job.units[rank];
  }
}

// One per user. Streams and memory belong to the device's current context. Every member throws
// Error(kTransport) that names the call that failed. Thread rules: one thread at a time.
class Device {
 public:
  virtual ~Device() = default;

  // Throws Error(kUnsupported) with the reason where no more can be had.
  virtual PinnedMemory pin(std::size_t bytes) = 0;
  // Pins memory that exists already, for as long as the result lives.
  virtual PinnedMemory pin(std::shared_ptr<std::byte> memory, std::size_t bytes) = 0;
  // Memory of the device, zero at first, for as long as the result lives. Throws
  // Error(kUnsupported) as pin() does.
  virtual DeviceMemory allocate(std::size_t bytes) = 0;
  // Memory of the device that other processes can map, zero at first, and a descriptor of it.
  // Throws Error(kUnsupported).
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

  // Enqueues all copies of the job as one kernel. prepare_copies() loads it: call that before a
  // graph is captured.
  virtual void copy_blocks(const BlockCopies& job, Stream stream) = 0;

  // Loads the kernels of reduce(), reduce_ll(), reduce_two_shot(), reduce_one_shot(),
  // update_window(), reduce_ll128(), sum_and_norm() or sum_rows(). Call it before the streams hold
  // anything that waits for other ranks: loading may wait for the streams.
  enum Reducing { kParts, kLl, kTwoShot, kOneShot, kUpdate, kLl128, kNorm, kRows };
  static constexpr int kReducings = 8;
  virtual void prepare(DType dtype, ReduceOp op, Reducing what) = 0;
  virtual void prepare_copies() = 0;
  virtual void prepare_ll_moves() = 0;
  virtual void prepare_exchange() = 0;
  // Semantics of combine() in reduction/reduce.h.
  virtual void reduce(const DeviceReduction& reduction, DType dtype, ReduceOp op, Stream stream) = 0;
  // Of float16, bfloat16 and float32.
  virtual void change_chunks(const QuantizedChunks& job, DType dtype, Stream stream) = 0;

  // The local steps of altorch.TokenSwitch: see kernels/token_jobs.cuh. prepare_tokens() loads
  // the kernels of all but sum_rows(), which takes float16, bfloat16, float32 and float64.
  virtual void prepare_tokens() = 0;
  virtual void pack_indices(const IndexPack& job, Stream stream) = 0;
  virtual void find_slots(const TokenTable& table, Stream stream) = 0;
  virtual void pack_rows(const RowPack& job, Stream stream) = 0;
  virtual void scatter_rows(const RowScatter& job, Stream stream) = 0;
  virtual void sum_rows(const RowSum& job, DType dtype, Stream stream) = 0;

  // The kernels of all these calls wait for other ranks: a GPU that several ranks share must run
  // their kernels at the same time.
  virtual void reduce_ll(const LlExchange& exchange, DType dtype, ReduceOp op, Stream stream) = 0;
  virtual void move_ll(const LlExchange& exchange, Stream stream) = 0;
  virtual void sum_and_norm(const NormedSum& job, DType dtype, Stream stream) = 0;
  virtual void exchange_pairs(const PairExchange& exchange, Stream stream) = 0;
  virtual void reduce_two_shot(const TwoShotReduce& job, DType dtype, ReduceOp op, Stream stream) = 0;
  virtual void reduce_one_shot(const OneShotReduce& job, DType dtype, ReduceOp op, Stream stream) = 0;
  virtual void exchange(const Exchange& job, Stream stream) = 0;
  virtual void reduce_ll128(const Ll128Reduce& job, DType dtype, ReduceOp op, Stream stream) = 0;
  virtual void exchange_ll128(const Ll128Exchange& job, Stream stream) = 0;

  // One-sided access. Only await_window() waits for other ranks. A move with a signal runs in one
  // thread block.
  virtual void prepare_windows() = 0;
  virtual void move_window(const WindowMove& job, Stream stream) = 0;
  virtual void await_window(const WindowWait& job, Stream stream) = 0;
  virtual void update_window(const WindowUpdate& job, DType dtype, ReduceOp op, Stream stream) = 0;
  virtual void change_number(const WindowNumber& job, Stream stream) = 0;

  // Overwrites a result if its call was aborted. Call prepare_poison() early, as the others, and
  // before a graph is captured.
  virtual void prepare_poison() = 0;
  virtual void poison(const PoisonJob& job, Stream stream) = 0;

  // What `stream` gets from now on comes after what `other` holds now.
  virtual void wait_for_stream(Stream stream, Stream other) = 0;
  // Raises a flag in pinned memory, or in the device's own, after what the stream holds; host and
  // GPU see what was written before.
  virtual void raise(Flag& flag, std::uint32_t value, Stream stream) = 0;
  // Holds the stream up until the host or a GPU raises the flag in pinned memory.
  virtual void wait_for_flag(const Flag& flag, std::uint32_t value, Stream stream) = 0;
};

}  // namespace altorch
