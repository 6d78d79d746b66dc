// SPDX-License-Identifier: BSD-3-Clause
// A GPU of threads: every stream is one, works off its queue in order, and dawdles at random, so
// that what is not ordered happens in every order. "Device memory" is host memory.
#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <random>
#include <thread>
#include <vector>

#include "device/device.h"

namespace altorch {

struct FakeDeviceOptions {
  unsigned seed = 1;
  std::chrono::microseconds longest_delay{200};  // before each piece of work, at random
  std::size_t pinned_limit = std::size_t{1} << 40;
  bool moves_data = true;  // false: flags and order only
  // Streams may write what others read, as they do once flags are raised to let them go on: results
  // are then marked, and ThreadSanitizer is not to look.
  bool aborts = false;
  // In a context beside torch's, where nothing but kernels is never held up: copies, and flags but
  // by kernels, throw.
  bool beside = false;
};

class FakeDevice : public Device {
 public:
  explicit FakeDevice(FakeDeviceOptions options = {});
  ~FakeDevice() override;

  PinnedMemory pin(std::size_t bytes) override;
  PinnedMemory pin(std::shared_ptr<std::byte> memory, std::size_t bytes) override;
  DeviceMemory allocate(std::size_t bytes) override;
  Exported export_memory(std::size_t bytes) override;
  DeviceMemory import_memory(const Descriptor& descriptor, std::size_t bytes) override;
  Stream make_stream() override;
  void copy_to_host(void* host, const void* device, std::size_t bytes, Stream stream) override;
  void copy_to_device(void* device, const void* host, std::size_t bytes, Stream stream) override;
  void copy_on_device(void* to, const void* from, std::size_t bytes, Stream stream) override;
  void prepare(DType, ReduceOp, Reducing) override {}
  void prepare_copies() override {}
  void copy_blocks(const BlockCopies& job, Stream stream) override;
  void prepare_ll_moves() override {}
  void prepare_exchange() override {}
  void reduce(const DeviceReduction& reduction, DType dtype, ReduceOp op, Stream stream) override;
  void reduce_ll(const LlExchange& exchange, DType dtype, ReduceOp op, Stream stream) override;
  void move_ll(const LlExchange& exchange, Stream stream) override;
  void exchange_pairs(const PairExchange& exchange, Stream stream) override;
  void sum_and_norm(const NormedSum& job, DType dtype, Stream stream) override;
  void reduce_two_shot(const TwoShotReduce& job, DType dtype, ReduceOp op, Stream stream) override;
  void reduce_one_shot(const OneShotReduce& job, DType dtype, ReduceOp op, Stream stream) override;
  void exchange(const Exchange& job, Stream stream) override;
  void change_chunks(const QuantizedChunks& job, DType dtype, Stream stream) override;
  void prepare_tokens() override {}
  void pack_indices(const IndexPack& job, Stream stream) override;
  void find_slots(const TokenTable& table, Stream stream) override;
  void pack_rows(const RowPack& job, Stream stream) override;
  void scatter_rows(const RowScatter& job, Stream stream) override;
  void sum_rows(const RowSum& job, DType dtype, Stream stream) override;
  void reduce_ll128(const Ll128Reduce& job, DType dtype, ReduceOp op, Stream stream) override;
  void exchange_ll128(const Ll128Exchange& job, Stream stream) override;
  void prepare_windows() override {}
  void move_window(const WindowMove& job, Stream stream) override;
  void await_window(const WindowWait& job, Stream stream) override;
  void update_window(const WindowUpdate& job, DType dtype, ReduceOp op, Stream stream) override;
  void change_number(const WindowNumber& job, Stream stream) override;
  void prepare_poison() override {}
  void poison(const PoisonJob& job, Stream stream) override;
  void wait_for_stream(Stream stream, Stream other) override;
  void raise(Flag& flag, std::uint32_t value, Stream stream) override;
  void wait_for_flag(const Flag& flag, std::uint32_t value, Stream stream) override;

  // Any work, like a kernel, on a stream of any fake device.
  static void launch(std::function<void()> work, Stream stream);
  // Blocks until the stream is idle; false after a minute.
  bool synchronize(Stream stream);
  int poisons() const { return poisons_; }  // enqueued so far
  std::size_t pinned_bytes() const { return *pinned_bytes_; }
  // The same, for when the device is gone.
  std::shared_ptr<const std::atomic<std::size_t>> pinned_counter() const { return pinned_bytes_; }

 private:
  void copy(void* to, const void* from, std::size_t bytes, Stream stream);
  void check_not_beside() const;

  struct Worker;
  static Worker& worker(Stream stream) { return *static_cast<Worker*>(stream); }

  const FakeDeviceOptions options_;
  const std::shared_ptr<std::atomic<std::size_t>> pinned_bytes_ =
      std::make_shared<std::atomic<std::size_t>>(0);
  std::vector<std::unique_ptr<Worker>> workers_;
  int poisons_ = 0;
};

}  // namespace altorch
