// SPDX-License-Identifier: BSD-3-Clause
// One-sided access to memory of other ranks: the calls on a window, and what carries them.
//
// Each rank of a group has registered some memory with the window. Its peers write to it, read it
// and count in it without its help, and notify it by signals. Calls of one rank to another take
// effect in the order in which they were begun.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "base/dtype.h"
#include "base/enum_table.h"
#include "base/error.h"
#include "base/reduce_op.h"
#include "base/wait_target.h"
#include "transports/channel.h"

namespace altorch {

enum class Access : std::uint8_t { kPut, kGet, kAccumulate, kFetchAdd, kCompareSwap, kSignal };
template <>
inline constexpr int kCountOf<Access> = 6;

struct AccessTraits {
  const char* name;
  const char* to;  // with the rank behind it, for messages
  bool reads_data = false, writes_data = false;
};
inline constexpr EnumTable<Access, AccessTraits> kAccesses({
    {Access::kPut, {"put", "put to", true, false}},
    {Access::kGet, {"get", "get from", false, true}},
    {Access::kAccumulate, {"accumulate", "accumulate to", true, false}},
    {Access::kFetchAdd, {"fetch_add", "fetch_add at", false, false}},
    {Access::kCompareSwap, {"compare_swap", "compare_swap at", false, false}},
    {Access::kSignal, {"signal", "signal to", false, false}},
});

// The error of a call whose peer has closed the window, or ended its group, before the call was
// done.
inline Error window_closed_by(int rank) {
  return Error(ErrorKind::kClosed,
               "rank " + std::to_string(rank) +
                   " of the group has closed the window; its ranks release a window together");
}
inline Error window_left_by(int rank) {
  return Error(ErrorKind::kPeerLost,
               "rank " + std::to_string(rank) +
                   " of the group has ended it while its window was open; its ranks release a "
                   "window together");
}

inline constexpr int kSignalSlots = 8;  // of each pair of ranks, in each direction
inline constexpr int kNoSlot = -1;

// One call. The target's memory is `rows` rows of `row_bytes`, `stride` bytes from one to the next;
// this rank's is one block. The caller has compared all of it with what the target registered.
struct WindowCall {
  Access access = Access::kSignal;
  int peer = 0;
  int slot = kNoSlot;  // signalled after everything else
  DType dtype = DType::kUInt8;
  ReduceOp op = ReduceOp::kSum;  // accumulate
  std::size_t offset = 0;        // of the first row, in bytes
  std::size_t row_bytes = 0, rows = 1, stride = 0;
  const void* from = nullptr;  // put, accumulate
  void* into = nullptr;        // get
  std::int64_t operand = 0;    // fetch_add: what is added; compare_swap: what is stored
  std::int64_t expected = 0;   // compare_swap
  std::int64_t found = 0;      // result of both: what was there before
  void* stream = nullptr;      // for device memory: the stream that the call is enqueued on
  bool captured = false;       // it goes into a graph, which may be replayed
  // Set if the stream then waits for the peer: the lane, and how many requests there the peer must
  // have answered.
  int held_at = kNoSlot;
  std::uint32_t held_until = 0;

  // What the RemoteMemory keeps of the call until it is done.
  struct State {
    virtual ~State() = default;
  };
  std::unique_ptr<State> state = {};

  std::size_t bytes() const { return row_bytes * rows; }
  // The length in the target's memory, from `offset` on.
  std::size_t span() const { return rows == 0 ? 0 : (rows - 1) * stride + row_bytes; }
};

// What every rank has registered.
struct Registered {
  std::size_t bytes = 0;
  DType dtype = DType::kUInt8;
};

// What a RemoteMemory over device memory has in addition: its calls are enqueued on their streams,
// and take effect in their order. Thread rules: any thread; only wait() and mark() call the device.
class StreamOrdered {
 public:
  virtual ~StreamOrdered() = default;
  // Holds call.stream up until call.peer has signalled in call.slot once more than was waited for
  // before.
  virtual void wait(const WindowCall& call) = 0;
  // How many such waits are over, without those in graphs. A slot of kSignalSlots or more stands
  // for a lane: how many requests to `source` the streams are past there.
  virtual std::uint32_t over(int source, int slot) const = 0;
  // For a lane, as in over(): how many requests the streams have come to.
  virtual std::uint32_t begun(int source, int slot) const = 0;
  // The same for waits that graphs replay: how many have begun, and how many are over.
  struct Replayed {
    std::uint32_t begun = 0, over = 0;
  };
  virtual Replayed replayed(int source, int slot) const = 0;
  // Ends all waits, now and from now on. The memory that they waited for is poisoned if the group's
  // on_error is `poison`.
  virtual void end() = 0;
  // Marks the present end of all streams that were given accesses; with `waits_too` also of those
  // that were given only waits. is_past(): whether all streams have come to their marks.
  virtual void mark(bool waits_too) = 0;
  virtual bool is_past() const = 0;
};

// Carries a window's calls to the memory of other ranks. Thread rules: any thread; one call by one
// thread at a time.
class RemoteMemory {
 public:
  virtual ~RemoteMemory() = default;
  virtual const char* name() const = 0;  // a literal: "shm", "mpi", "messages"
  // kDone: it has taken effect. kPending: to be tested until it has. kFailed: `error` is set.
  virtual State begin(WindowCall& call, std::optional<Error>& error) = 0;
  virtual State test(WindowCall& call, std::optional<Error>& error) = 0;
  // Aborts a pending call. False if its buffer may still be touched, and must be kept until the
  // process ends.
  virtual bool cancel(WindowCall& call) = 0;
  // How often `source` has signalled this rank, since the window was made.
  virtual std::uint64_t signals(int source, int slot) const = 0;
  // Raised when signals() is `least` or more.
  virtual WaitTarget wait_target(int, int, std::uint64_t) const { return {}; }
  // Whether that rank has closed its part: it will send no more signals.
  virtual bool has_left(int rank) const = 0;
  // Whether this rank itself carries out what its peers ask of its memory. serve() does that for
  // all requests that have arrived, and must be called again and again; it returns true if there
  // were any.
  virtual bool is_served() const { return false; }
  // Whether calls to one target take effect in the order in which they are begun. If not, the next
  // call is begun when the one before it is done.
  virtual bool keeps_order() const { return false; }
  virtual bool serve() { return false; }
  // Null: a call has taken effect when it is done. Otherwise a call without a result is done when
  // it is enqueued.
  virtual StreamOrdered* streams() { return nullptr; }
  // The memory of another rank as this process sees it; null: it does not.
  virtual std::byte* map(int) { return nullptr; }
  // From now on no peer touches this rank's memory, and a peer that tries gets an error. False if a
  // peer may still touch it. `agreed`: all ranks close it, and nothing is in flight.
  virtual bool close(bool agreed) = 0;
};

// Carries out a call on `target`, the peer's memory as this process can access it. It does not
// signal. The caller keeps other ranks out if the access is more than a copy.
void access_memory(WindowCall& call, std::byte* target);
inline bool is_atomic(Access access) {
  return access == Access::kAccumulate || access == Access::kFetchAdd || access == Access::kCompareSwap;
}

}  // namespace altorch
