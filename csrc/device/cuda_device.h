// SPDX-License-Identifier: BSD-3-Clause
// A CUDA device behind the Device interface, over the driver's library, which is found at run time.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "device/cuda_context.h"
#include "device/device.h"

namespace altorch {

class CudaDevice : public Device {
 public:
  // `shared`: other processes use the GPU too, so that what its multiprocessors do waits for their
  // turn. `beside`: in a context beside torch's (cuda_context.h). Throws Error(kUnsupported) with
  // unsupported_reason()'s words.
  explicit CudaDevice(int index, bool shared = false, bool beside = false);
  ~CudaDevice() override;

  // Why device `index` cannot serve, in a clause, or nothing.
  static std::optional<std::string> unsupported_reason(int index);

  // Text that names the GPU (or its slice) in every process, and the host that NCCL_HOSTID claims;
  // of `index` alone where the driver is missing.
  static std::string identity(int index);

  // Why other processes cannot map its memory, in a clause, or nothing.
  static std::optional<std::string> export_unsupported_reason(int index);
  // Why kernels on device `index` cannot do atomic operations on memory of the GPU of that
  // identity(), or nothing.
  static std::optional<std::string> atomics_unsupported_reason(int index, const std::string& other);
  // The other GPUs, by identity(), in whose memory a line of 128 bytes becomes visible from its
  // beginning on (kernels/ll128.cuh): of the same generation, over NVLink. Only those that this
  // process sees.
  static std::vector<std::string> links(int index);
  // Whether kernels of several processes run on it at the same time: they are clients of the
  // Multi-Process Service.
  static bool serves_several(int index);
  static int multiprocessors(int index);
  // The one allocation that holds the block, if other processes can map it (cuMemCreate).
  static std::optional<std::span<std::byte>> allocation(const std::byte* block, std::size_t bytes);

  // Blocks until all streams of the process have come to their ends. False where that cannot be.
  bool wait_until_idle();

  PinnedMemory pin(std::size_t bytes) override;
  PinnedMemory pin(std::shared_ptr<std::byte> memory, std::size_t bytes) override;
  DeviceMemory allocate(std::size_t bytes) override;
  Exported export_memory(std::size_t bytes) override;
  DeviceMemory import_memory(const Descriptor& descriptor, std::size_t bytes) override;
  Stream make_stream() override { return make_stream(/*high_priority=*/true); }
  Stream make_stream(bool high_priority);
  void copy_to_host(void* host, const void* device, std::size_t bytes, Stream stream) override;
  void copy_to_device(void* device, const void* host, std::size_t bytes, Stream stream) override;
  void copy_on_device(void* to, const void* from, std::size_t bytes, Stream stream) override;
  void prepare(DType dtype, ReduceOp op, Reducing what) override;
  void prepare_copies() override;
  void copy_blocks(const BlockCopies& job, Stream stream) override;
  void prepare_ll_moves() override;
  void prepare_exchange() override;
  void reduce(const DeviceReduction& reduction, DType dtype, ReduceOp op, Stream stream) override;
  void reduce_ll(const LlExchange& exchange, DType dtype, ReduceOp op, Stream stream) override;
  void move_ll(const LlExchange& exchange, Stream stream) override;
  void exchange_pairs(const PairExchange& exchange, Stream stream) override;
  void reduce_two_shot(const TwoShotReduce& job, DType dtype, ReduceOp op, Stream stream) override;
  void reduce_one_shot(const OneShotReduce& job, DType dtype, ReduceOp op, Stream stream) override;
  void exchange(const Exchange& job, Stream stream) override;
  void change_chunks(const QuantizedChunks& job, DType dtype, Stream stream) override;
  void prepare_tokens() override;
  void pack_indices(const IndexPack& job, Stream stream) override;
  void find_slots(const TokenTable& table, Stream stream) override;
  void pack_rows(const RowPack& job, Stream stream) override;
  void scatter_rows(const RowScatter& job, Stream stream) override;
  void sum_rows(const RowSum& job, DType dtype, Stream stream) override;
  void reduce_ll128(const Ll128Reduce& job, DType dtype, ReduceOp op, Stream stream) override;
  void sum_and_norm(const NormedSum& job, DType dtype, Stream stream) override;
  void exchange_ll128(const Ll128Exchange& job, Stream stream) override;
  void prepare_windows() override;
  void move_window(const WindowMove& job, Stream stream) override;
  void await_window(const WindowWait& job, Stream stream) override;
  void update_window(const WindowUpdate& job, DType dtype, ReduceOp op, Stream stream) override;
  void change_number(const WindowNumber& job, Stream stream) override;
  void prepare_poison() override;
  void poison(const PoisonJob& job, Stream stream) override;
  void wait_for_stream(Stream stream, Stream other) override;
  void raise(Flag& flag, std::uint32_t value, Stream stream) override;
  void wait_for_flag(const Flag& flag, std::uint32_t value, Stream stream) override;

 private:
  // Copies to the device as several rows; false where `bytes` cannot be cut so.
  bool copy_in_rows(void* device, const void* host, std::size_t bytes, Stream stream);
  void*& reduction(DType dtype, ReduceOp op, Reducing what) {
    return reductions_[what][static_cast<int>(dtype)][static_cast<int>(op)];
  }
  // Maps physical memory, whose handle it releases.
  DeviceMemory map(std::uint64_t handle, std::size_t bytes);
  // Sets bytes of the device to 0, and waits for that.
  void clear(std::uint64_t memory, std::size_t bytes);
  // `threads`: of each block, and of all.
  void launch(void* kernel, unsigned columns, unsigned rows, std::int64_t threads, const void* argument,
              Stream stream);
  void launch(void* kernel, std::int64_t threads, int most_blocks, const void* argument, Stream stream);
  // Several blocks for each of `rows` rows of `bytes`.
  void launch_rows(void* kernel, std::int64_t rows, std::int64_t bytes, const void* argument, Stream stream);
  void launch_ll(void* kernel, const LlExchange& exchange, std::int64_t words, Stream stream);

  const int index_;
  const bool shared_;
  bool launches_early_ = false;
  std::shared_ptr<CudaContext> context_;
  void* event_ = nullptr;
  std::vector<Stream> streams_;
  // Compiled so far.
  void* reductions_[kReducings][kDTypeCount][kReduceOpCount] = {};
  void* quantized_chunks_[2][kDTypeCount] = {};
  void* block_copies_ = nullptr;
  void* ll_move_ = nullptr;
  void *exchange_ = nullptr, *ll128_exchange_ = nullptr;
  void* pair_exchange_ = nullptr;
  void* poison_ = nullptr;
  void *index_pack_ = nullptr, *find_slots_ = nullptr, *row_pack_ = nullptr, *row_scatter_ = nullptr;
  void* window_move_ = nullptr;
  void* window_wait_ = nullptr;
  void* window_number_ = nullptr;
};

}  // namespace altorch
