// SPDX-License-Identifier: BSD-3-Clause
// The ranks that NVSHMEM serves in this process: it has one set of them, for the life of the
// process. The first window that names NVSHMEM makes it; later ones use it if their group has the
// same processes in the same order.
//
// NVSHMEM is never finalized, because that would wait for peers that may be dead. Its collective
// calls have no deadline: they run on a helper thread here. Once one of them fails or is overdue,
// NVSHMEM is lost, and is not called any more in this process.
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

  // That of this process.
  static NvshmemWorld& instance();
  // What instance() returns from now on; null: that of the process again. For tests, in which ranks
  // are threads. Call it while no thread uses a window.
  static void replace(NvshmemWorld& (*find)());

  static constexpr char kOtherGroup[] =
      "NVSHMEM has one world for the life of a process, and it is another group's";

  // Why this process cannot use NVSHMEM, as a clause; empty: it can. The second: as this rank of a
  // group of so many, with so many words for signals.
  std::string unsupported_reason();
  std::string unsupported_reason(int rank, int size, std::size_t signals);
  // The same in all processes of the world; empty: there is none yet.
  std::string id();
  std::size_t granularity() const { return granularity_; }

  // For one rank; all others get the id from it. Throws Error(kUnsupported).
  std::string make_id();
  // Collective; nothing if this process has joined already. `timeout`, `check_peers`: as in
  // within(). Throws Error(kUnsupported), and what `check_peers` throws.
  void join(const std::string& id, int device, int rank, int size, std::chrono::milliseconds timeout,
            const CheckPeers& check_peers);

  // The number of a registered allocation, the same on all ranks; 0: it is not registered.
  std::uint64_t registered(const std::byte* base);
  // Collective, with allocations of one size on all ranks: registers this rank's. If it is
  // registered, it only counts one more user; the caller makes sure that this holds for all ranks.
  // Returns its symmetric address. Throws as join().
  std::byte* add_buffer(std::byte* base, std::size_t bytes, std::chrono::milliseconds timeout,
                        const CheckPeers& check_peers);
  // Collective, when no call uses it any more. False: NVSHMEM may still map the allocation.
  bool remove_buffer(std::byte* base, std::chrono::milliseconds timeout);
  // Where so many words begin among all that there are: zero at first, and not used before. They
  // are not given back, because a late signal may come. Throws Error(kUnsupported) if there are no
  // more.
  std::size_t take_signals(std::size_t number);
  // The words that begin there on any rank, as NVSHMEM names them, and on this rank itself.
  std::uint64_t* signals(std::size_t begin);
  // Not all ranks have what they made together.
  void lose(const std::string& why);

  // Calls act(table). Throws Error(kClosed) if NVSHMEM is lost.
  template <class Act>
  void call(const Act& act) {
    const std::lock_guard lock(mutex_);
    check_usable();
    act(table_);
  }

 private:
  struct Buffer {
    std::byte* symmetric = nullptr;
    std::size_t bytes = 0;
    std::uint64_t number = 0;
    int users = 0;
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
  std::string lost_;
  std::string id_;
  int device_ = 0, rank_ = 0, size_ = 0;
  std::map<const std::byte*, Buffer> buffers_;
  std::uint64_t buffers_made_ = 0;
  std::uint64_t* signals_ = nullptr;
  std::size_t signals_taken_ = 0;
};

}  // namespace altorch::nvshmem
