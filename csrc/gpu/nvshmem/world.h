// SPDX-License-Identifier: BSD-3-Clause
// NVSHMEM in this process. It is initialized once, for one set of processes. The first window that
// names NVSHMEM initializes it; later windows use it if their group has the same processes in the
// same order.
//
// NVSHMEM is never finalized, because that would wait for peers that may be dead. Its collective
// calls have no deadline, so they run on a helper thread. After one of them fails or times out,
// NVSHMEM is unusable: this process makes no more calls to it.
//
// Thread rules: any thread; calls of NVSHMEM exclude each other. The ranks make collective calls in
// the same order.
#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "gpu/nvshmem/library.h"

namespace altorch::nvshmem {

class NvshmemWorld {
 public:
  using CheckPeers = std::function<void()>;

  // `load`: throws Error(kUnsupported) where there is no library. `granularity`: of memory that
  // can be registered.
  NvshmemWorld(std::function<Table()> load, std::size_t granularity);
  NvshmemWorld(const NvshmemWorld&) = delete;

  // The instance of this process. The first call sets NVSHMEM_CUMEM_GRANULARITY in the environment.
  static NvshmemWorld& instance();
  // What instance() returns from now on; null: that of the process again. For tests, in which ranks
  // are threads. Call it while no thread uses a window.
  static void replace(NvshmemWorld& (*find)());

  static constexpr char kOtherGroup[] =
      "NVSHMEM has one world for the life of a process, and it is another group's";

  // Why this process cannot use NVSHMEM, as a clause; empty: it can. The second asks this for a
  // rank of a group of `size` ranks that needs so many signals.
  std::string unsupported_reason();
  std::string unsupported_reason(int rank, int size, std::size_t signals);
  // The same in all processes of the world; empty: there is none yet.
  std::string id();
  std::size_t granularity() const { return granularity_; }

  // For one rank; all others get the id from it. Throws Error(kUnsupported).
  std::string make_id();
  // Collective; nothing if this process has joined already. `timeout`, `check_peers`: as in
  // run_with_timeout(). Throws Error(kUnsupported), and what `check_peers` throws.
  void join(const std::string& id, int device, int rank, int size, std::chrono::milliseconds timeout,
            const CheckPeers& check_peers);

  // The number of a registered allocation, the same on all ranks; 0: it is not registered.
  std::uint64_t registration_number(const std::byte* base);
  // Collective, with allocations of one size on all ranks: registers this rank's, for the life of
  // the process, and returns its symmetric address. If it is registered already, it only returns
  // this; the caller makes sure that it is so for all ranks. Throws as join().
  std::byte* add_buffer(std::byte* base, std::size_t bytes, std::chrono::milliseconds timeout,
                        const CheckPeers& check_peers);
  // Reserves signals, which are zero and unused, and returns the index of the first. They are never
  // returned, because a late signal may arrive. Throws Error(kUnsupported) if too few are left.
  std::size_t reserve_signals(std::size_t number);
  // The symmetric address of signal `begin`, which is also its address on this rank.
  std::uint64_t* signals(std::size_t begin);
  // To be called if some ranks have completed a collective step and others have not.
  void mark_unusable(const std::string& why);

  // Calls act(table). Throws Error(kClosed) if NVSHMEM is unusable.
  template <class Act>
  void call(const Act& act) {
    const std::lock_guard lock(mutex_);
    check_usable();
    act(table_);
  }

 private:
  struct Buffer {
    std::byte* symmetric = nullptr;
    std::uint64_t number = 0;
  };

  // All of these need mutex_.
  void check_usable() const;
  std::string find_unsupported_reason();
  bool has_signals(std::size_t number) const;
  void collective(const std::string& what, std::chrono::milliseconds timeout,
                  std::function<int(const Table&)> body, const CheckPeers& check_peers);

  const std::function<Table()> load_;
  const std::size_t granularity_;
  std::mutex mutex_;  // guards what follows
  bool is_loaded_ = false;
  Table table_;
  std::string unusable_reason_;
  std::string id_;
  int device_ = 0, rank_ = 0, size_ = 0;
  std::map<const std::byte*, Buffer> buffers_;
  std::uint64_t buffers_made_ = 0;
  std::uint64_t* signals_ = nullptr;
  std::size_t signals_reserved_ = 0;
};

}  // namespace altorch::nvshmem
