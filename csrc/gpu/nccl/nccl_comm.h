// SPDX-License-Identifier: BSD-3-Clause
// One group's NCCL communicator on one device: enqueues operations on a stream. NCCL holds the host
// up while it connects with a peer, when an algorithm or the peer is first needed, and no more.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/error.h"
#include "gpu/nccl/library.h"
#include "rendezvous/key_value_store.h"
#include "transports/native_collectives.h"

namespace altorch::nccl {

// As rank 0 has written it into the store. Throws Error(kInternal) on anything else.
UniqueId unique_id_from(const std::string& hex);

// What a user may say about a communicator; kUndefined leaves it to NCCL.
struct Knobs {
  int min_ctas = Config::kUndefined, max_ctas = Config::kUndefined;
  int cga_cluster_size = Config::kUndefined;
  int split_share = Config::kUndefined;  // 1: what is split off shares its parent's resources
};

// Thread rules: any thread; calls exclude each other, for NCCL wants that, all but abort() and
// handle().
class NcclComm {
 public:
  // Called repeatedly while a rank waits for its peers. Throws Error if one cannot come any more.
  using CheckPeers = std::function<void()>;

  // Collective, on CUDA device `device`; `key`: a new one, the same on all ranks. Called when all
  // ranks are there, for which NCCL would wait without end; the others wait for rank 0's id for up
  // to `timeout`. `timeout`: also of later calls that wait for all ranks; making it has
  // ALTORCH_BOOTSTRAP_SECONDS, if that is longer. Throws Error(kTimeout, kTransport, kUnsupported),
  // and what `check_peers` throws.
  NcclComm(KeyValueStore& store, const std::string& key, int device, int rank, int size,
           std::chrono::milliseconds timeout, const Knobs& knobs = {}, const CheckPeers& check_peers = {});
  // Ends a communicator that nothing is in flight on: what peers still need of it is let finish,
  // for some seconds.
  ~NcclComm();
  NcclComm(const NcclComm&) = delete;
  NcclComm& operator=(const NcclComm&) = delete;

  // The communicator of the ranks that name the same color, with ranks in the order of their keys;
  // null for kNoColor. Collective over all ranks of this one. Throws as the constructor does, and
  // Error(kClosed).
  std::unique_ptr<NcclComm> split(int color, int key, int device, int size, std::chrono::milliseconds timeout,
                                  const Knobs& knobs);

  // Tells NCCL of a buffer that many operations will use; of one that all ranks allocated alike
  // (`symmetric`; collective then). Throws Error(kUnsupported) where the loaded NCCL is too old,
  // Error(kTimeout, kTransport, kClosed).
  void add_buffer(void* buffer, std::size_t bytes, bool symmetric);
  void remove_buffer(void* buffer);
  bool has_buffers();

  // One-sided communication, with memory that all ranks have registered as one symmetric buffer
  // (add_buffer()). A communicator has one count of signals for each pair of ranks, for all buffers
  // together. A signal comes after everything that its stream has given NCCL for the same peer
  // before.
  // Why the loaded NCCL has no one-sided calls, as a clause, or nothing.
  static std::optional<std::string> one_sided_unsupported_reason();
  // `from` lies in a symmetric buffer of this rank's, too. All three enqueue, and throw
  // Error(kTransport, kClosed).
  void put_signal(const void* from, std::size_t bytes, int peer, void* buffer, std::size_t offset,
                  void* stream);
  void signal(int peer, void* stream);
  // Holds the stream up until the peer has signalled once more than was waited for before.
  void wait_signal(int peer, void* stream);
  // Collective: NCCL releases the buffers, and the communicator ends as in the destructor. False if
  // that is not done after some seconds: NCCL may still access the buffers.
  bool leave();

  // Memory of the GPU, in bytes.
  struct Memory {
    std::uint64_t suspendable = 0, persistent = 0;
  };
  // Nothing where the loaded NCCL cannot tell, or no longer.
  std::optional<Memory> memory();
  // Why it cannot suspend and resume, as a clause, or nothing. The same on every rank.
  std::optional<std::string> suspend_unsupported_reason();
  // suspend() gives back the memory that resume() takes again, at the same addresses; in between
  // the communicator is not used. Both are collective, with nothing in flight on the device. They
  // throw Error(kTimeout, kTransport, kClosed), and, once the communicator is aborted, what
  // `check_peers` throws.
  void suspend(const CheckPeers& check_peers);
  void resume(const CheckPeers& check_peers);

  // ncclComm_t, for libraries that share it; null once aborted.
  Comm handle();

  // Why NCCL cannot carry this operation, or nothing. The same on every rank.
  static std::optional<std::string> unsupported_reason(const Call& operation);

  // Whether one call of any NCCL carries it; otherwise it may take several, as a group.
  static bool is_one_call(const Call& operation);

  // Puts the operations, at least one, on `stream`, as one NCCL group where they are several.
  // Buffers are device memory. Barriers, scans and one-sided calls are left out. Throws
  // Error(kTransport, kClosed).
  void enqueue(std::span<const Call> operations, void* stream);

  // What NCCL found out by itself since (a dead peer's connection, say).
  std::optional<std::string> async_error();
  // Ends everything in flight, here only. Idempotent. A call that NCCL holds up comes back with an
  // error; NCCL frees the communicator beside it, so this is for a group that is lost anyway.
  void abort();

 private:
  NcclComm(Comm comm, int device, int rank, int size, std::chrono::milliseconds timeout);
  void check(const char* what, Result result);
  bool finish(std::vector<void*> windows);
  // A call that waits for the other ranks. Ends the communicator where it does not come back.
  void together(const char* what, std::function<Result()> call, const CheckPeers& check_peers);
  // NCCL 2.28 has one of its own, which is used while no symmetric buffer is registered. With
  // mutex_ held.
  bool has_all_to_all(const Call& operation) const;
  void call(const Call& operation, void* stream);
  void reduce_scatter_uneven(const Call& operation, int type, int op, void* stream);
  void all_gather_uneven(const Call& operation, void* stream);
  void exchange(const Call& operation, void* stream);

  const Table& table_;
  const int device_, rank_, size_;
  const std::chrono::milliseconds timeout_;  // of what waits for all ranks
  std::timed_mutex mutex_;
  std::atomic<Comm> comm_{nullptr};
  struct Registered {
    void* handle;
    bool symmetric;
  };
  std::map<void*, Registered> buffers_;
  std::atomic<bool> suspended_{false};
  std::atomic<bool> shares_{false};  // memory, with what was split off
};

}  // namespace altorch::nccl
