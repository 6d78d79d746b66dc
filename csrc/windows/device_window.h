// SPDX-License-Identifier: BSD-3-Clause
// Windows of ranks whose GPUs map each other's memory. An access is a kernel or a copy on the
// caller's stream, which writes or reads the peer's memory. A signal is a number in the peer's
// memory, which a kernel of the peer polls. So accesses and waits can be captured into CUDA graphs.
// If kernels of two ranks cannot run at the same time, streams wait for numbers in pinned memory
// instead. They also do so if the GPUs do not map each other's memory. Then accesses go through
// pinned memory, too (staged_access.h).
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "base/flag.h"
#include "device/device.h"
#include "gpu/on_error.h"
#include "transports/window.h"
#include "windows/staged_access.h"

namespace altorch {

class DeviceWindow : public RemoteMemory, public StreamOrdered {
 public:
  // What must not be freed while the device may touch it.
  struct Memory {
    std::unique_ptr<Device> device;
    std::vector<DeviceMemory> of;       // by rank: what it has registered
    std::vector<DeviceMemory> signals;  // by rank: where the others signal it, signal_bytes()
    PinnedMemory board;                 // board_bytes(); shared by all, unless `is_relayed`
    DeviceMemory counts;                // of this rank, count_bytes()
    PinnedMemory told;                  // by the device to the host, told_bytes()
    PinnedMemory staged;      // StagedBoard::bytes(); shared like `board`; null: the memory of all is mapped
    bool is_relayed = false;  // both are this rank's own (relayed_window.h)
    std::unique_ptr<Device> serving;  // with `staged`: the same device in a second context
  };
  static std::size_t signal_bytes(int ranks);
  static std::size_t board_bytes(int ranks);
  static std::size_t count_bytes(int ranks);
  static std::size_t told_bytes(int ranks);

  // `no_atomics`: by rank, why atomic operations do not reach its memory; empty: they do. `own`:
  // what this rank has registered.
  DeviceWindow(Memory memory, int rank, const Registered& own, OnError on_error, bool co_resident,
               std::vector<std::string> no_atomics);

  const char* name() const override { return staged_ ? "host_staged" : "peer"; }
  State begin(WindowCall& call, std::optional<Error>& error) override;
  State test(WindowCall& call, std::optional<Error>& error) override;
  bool cancel(WindowCall&) override { return true; }
  // Only the device knows the count of signals.
  std::uint64_t signals(int, int) const override { return 0; }
  bool has_left(int rank) const override;
  bool is_served() const override { return staged_.has_value(); }
  bool serve() override { return staged_ && staged_->serve(); }
  StreamOrdered* streams() override { return this; }
  // The stream on which this rank serves its peers, if is_served().
  Stream serving() const { return staged_->serving(); }
  std::byte* map(int rank) override { return memory_->of[static_cast<std::size_t>(rank)].get(); }
  bool close(bool agreed) override;

  void wait(const WindowCall& call) override;
  std::uint32_t over(int source, int slot) const override;
  std::uint32_t begun(int source, int slot) const override;
  Replayed replayed(int source, int slot) const override;
  void end() override;
  void mark(bool waits_too) override;
  bool is_past() const override;

 protected:
  // For subclasses that carry some calls in another way; both need mutex_. A subclass that has a
  // stream wait calls end_wait() after that: the host is told when the wait is over, and an aborted
  // wait marks this rank's memory.
  void remember(const WindowCall& call, bool waits);
  void end_wait(const WindowCall& call);
  std::uint32_t* aborted() const;  // not 0: waits abort; in pinned memory
  bool is_aborted() const;
  // On the serving stream, which no call blocks; if is_served().
  void enqueue_beside(const WindowMove& job) { staged_->enqueue(job); }
  StagedBoard staged_board() const;
  // On `board`.
  Flag& board_signal(int target, int source, int slot) const;
  Flag& left(int rank) const;

  const std::shared_ptr<Memory> memory_;
  const int rank_, ranks_;
  const Registered own_;
  const Stream own_stream_;
  std::mutex mutex_;  // guards the device and what is under way there

 private:
  // Counts for each place. Behind them come ended(), the count of marks of the serving stream, and
  // StagedAccess::Spot.
  enum Count { kSent, kTaken, kOver, kReplayBegun, kReplayOver, kCounts };
  enum Told { kToldOver, kToldReplayBegun, kToldReplayOver, kTolds };
  struct ToldHost;
  struct Answer;

  static constexpr std::size_t kMostStreams = 32, kAnswers = 64;

  static std::size_t place(int rank, int slot) {
    return static_cast<std::size_t>(rank) * kSignalSlots + static_cast<std::size_t>(slot);
  }
  WindowCount* count(Count what, std::size_t place) const;
  std::uint32_t* told(Told what, std::size_t place) const;
  std::uint32_t load(Told what, std::size_t place) const;
  std::uint32_t* ended() const;  // not 0: kernels leave everything as it is; on the device
  std::uint32_t* signal_to(int target, int source, int slot) const;

  // All of these need mutex_.
  State enqueue(WindowCall& call);
  State pass(WindowCall& call);
  void move(const WindowCall& call);
  void signal(const WindowCall& call);
  void add_signal(const WindowCall& call, WindowMove& move) const;
  State ask(WindowCall& call);

  Flag& mark_of(std::size_t stream) const;
  // Whether it is the serving stream: the second of this window's own streams. The device counts
  // its marks.
  bool is_serving(std::size_t stream) const { return staged_ && stream == 1; }

  const bool marks_, co_resident_;
  const std::vector<std::string> no_atomics_;
  // Guarded by mutex_.
  std::optional<StagedAccess> staged_;
  struct Used {
    Stream stream;
    bool accesses;  // not only waits
  };
  std::vector<Used> used_;  // this window's own streams come first
  std::vector<std::size_t> free_answers_;
  bool captured_ = false;
  // The waits that were enqueued, by place, if kernels of two ranks cannot run at the same time.
  // Atomic, because end() must not wait for the thread that holds mutex_.
  const std::unique_ptr<std::atomic<std::uint32_t>[]> enqueued_;
  std::atomic<std::uint32_t> marks_made_{0}, marks_served_{0};
  std::atomic<std::uint64_t> marked_{0};  // streams, a bit each
};

}  // namespace altorch
