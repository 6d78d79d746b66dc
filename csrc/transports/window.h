// SPDX-License-Identifier: BSD-3-Clause
// One-sided access to memory of other ranks: what a window is asked for, and what carries it.
//
// Each rank of a group has registered some memory with the window. The others write to it, read it and count in it without
// its help, and tell it by signals. Calls of one rank to another take effect in the order in which they were begun.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "base/awaited.h"
#include "base/dtype.h"
#include "base/enum_table.h"
#include "base/error.h"
#include "base/reduce_op.h"
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

// What a call is told whose peer has closed the window, or ended its group, before it was done.
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

// One call. The target's memory is `rows` rows of `row_bytes`, `stride` bytes from one to the next; this rank's is one
// block. Whoever calls has compared all of it with what the target registered.
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
  void* stream = nullptr;      // of memory on a device: where it takes its place
  bool captured = false;       // a graph takes it, which may be replayed
  // Set where the stream then waits for the peer: in which lane, until it has answered so many requests there.
  int held_at = kNoSlot;
  std::uint32_t held_until = 0;

  // Of whoever carries it, until it is done.
  struct State {
    virtual ~State() = default;
  };
  std::unique_ptr<State> state = {};

  std::size_t bytes() const { return row_bytes * rows; }
  // Of the target's memory, from `offset` on.
  std::size_t span() const { return rows == 0 ? 0 : (rows - 1) * stride + row_bytes; }
};

// What every rank has registered.
struct Registered {
  std::size_t bytes = 0;
  DType dtype = DType::kUInt8;
};

// What a way to memory on devices has beside: calls are enqueued on their streams, and take effect in their order. Thread
// rules: any thread; nothing asks the device anything but wait() and mark().
class StreamOrdered {
 public:
  virtual ~StreamOrdered() = default;
  // Holds call.stream up until call.peer has signalled in call.slot once more than was waited for before.
  virtual void wait(const WindowCall& call) = 0;
  // How many such waits are over, of those that no graph took. Behind the slots of signals: how many requests to `source`
  // the streams are past, by lane.
  virtual std::uint32_t over(int source, int slot) const = 0;
  // Of the latter, how many the streams have come to.
  virtual std::uint32_t begun(int source, int slot) const = 0;
  // The same of what graphs replay: how many have begun, and are over.
  struct Replayed {
    std::uint32_t begun = 0, over = 0;
  };
  virtual Replayed replayed(int source, int slot) const = 0;
  // Lets everything that waits go on, now and from now on; what it waited for is marked, unless nobody wants that.
  virtual void end() = 0;
  // Notes how far the streams are that were given accesses, or anything; is_past() when they have come there.
  virtual void mark(bool waits_too) = 0;
  virtual bool is_past() const = 0;
};

// A window's way to the memory of the others. Thread rules: any thread; one call by one thread at a time.
class RemoteMemory {
 public:
  virtual ~RemoteMemory() = default;
  virtual const char* name() const = 0;  // a literal: "shm", "mpi", "messages"
  // kDone: it has taken effect. kPending: to be tested until it has. kFailed: `error` is set.
  virtual State begin(WindowCall& call, std::optional<Error>& error) = 0;
  virtual State test(WindowCall& call, std::optional<Error>& error) = 0;
  // Gives up one that is pending. False where its buffer may be touched yet, and must be kept until the process ends.
  virtual bool cancel(WindowCall& call) = 0;
  // How often `source` has signalled this rank, since the window was made.
  virtual std::uint64_t signals(int source, int slot) const = 0;
  // That they are `least`.
  virtual Awaited awaited(int, int, std::uint64_t) const { return {}; }
  // Whether that rank has closed its part: what it has not signalled yet it never will.
  virtual bool has_left(int rank) const = 0;
  // Whether this rank carries out itself what others ask of its memory. serve() does that, for whatever is there, and has to
  // be called again and again; true: there was something.
  virtual bool is_served() const { return false; }
  // Whether calls to one target that are begun one after another take effect so; else the next is begun when the one
  // before it is done.
  virtual bool keeps_order() const { return false; }
  virtual bool serve() { return false; }
  // Null: calls have taken effect when they are done. Else begin() of what has no result is done when it is enqueued.
  virtual StreamOrdered* streams() { return nullptr; }
  // The memory of another rank as this process sees it; null: it does not.
  virtual std::byte* map(int) { return nullptr; }
  // From now on nobody touches this rank's memory; who tries is told. False where somebody may touch it yet. `agreed`: all
  // ranks close it, and nothing is under way.
  virtual bool close(bool agreed) = 0;
};

// Carries out a call on memory that is at hand: `target` is that of the peer. Signals are not its business. The caller
// keeps others out where the access is more than a copy.
void access_memory(WindowCall& call, std::byte* target);
inline bool is_atomic(Access access) {
  return access == Access::kAccumulate || access == Access::kFetchAdd || access == Access::kCompareSwap;
}

}  // namespace altorch
