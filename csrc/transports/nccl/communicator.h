// One group's NCCL communicator on one device: enqueues operations on a stream and never blocks the host once
// it is made.
#pragma once

#include <chrono>
#include <mutex>
#include <optional>
#include <span>
#include <string>

#include "common/error.h"
#include "common/key_value_store.h"
#include "transports/nccl/library.h"
#include "transports/whole_collectives.h"

namespace altorch::nccl {

// Thread rules: any thread; calls exclude each other, for NCCL wants that.
class Communicator {
 public:
  // Collective, on CUDA device `device`. Throws Error(kTimeout, kTransport, kUnsupported).
  Communicator(KeyValueStore& store, const std::string& key, int device, int rank, int size,
               std::chrono::milliseconds timeout);
  // Frees the communicator without waiting for peers.
  ~Communicator();
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  // Why NCCL cannot carry this operation, or nothing. The same on every rank.
  static std::optional<std::string> obstacle(const CollectiveCall& operation);

  // Whether one call of NCCL carries it; otherwise it takes several, as a group.
  static bool is_one_call(const CollectiveCall& operation);

  // Puts the operations on `stream`, as one NCCL group where they are several. Buffers are device memory.
  void enqueue(std::span<const CollectiveCall> operations, void* stream);

  // What NCCL found out by itself since (a dead peer's connection, say).
  std::optional<std::string> async_error();
  // Ends everything in flight, here only. Idempotent.
  void abort();

 private:
  void check(const char* what, Result result);
  void start(const UniqueId& id, int device, std::chrono::milliseconds timeout);
  void call(const CollectiveCall& operation, void* stream);
  void reduce_scatter_uneven(const CollectiveCall& operation, int type, int op, void* stream);
  void all_gather_uneven(const CollectiveCall& operation, void* stream);
  void exchange(const CollectiveCall& operation, void* stream);
  void scatter_gather(const CollectiveCall& operation, void* stream);

  const Table& table_;
  const int rank_, size_;
  std::mutex mutex_;
  Comm comm_ = nullptr;
  std::string aborted_;
};

}  // namespace altorch::nccl
