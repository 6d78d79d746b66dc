// SPDX-License-Identifier: BSD-3-Clause
// Access to the memory of GPUs that do not map each other's memory, through pinned memory
// (staged_board.h).
//
//   origin's stream   copy into a slot, raise(asked)                                       wait(answered), copy out of it
//   target's host                                    sees it, gives a stream of its own:
//   target's stream                                  copy, add or count, raise(answered)
//
// The target serves with kernels only, in a second CUDA context. The context that its caller uses
// may be blocked by a call that waits for this very rank (device/cuda_context.h).
//
// A call has taken effect when its stream is past it, as in every other window: what comes next on
// the stream, such as a signal, comes after. Large calls go in pieces, several at a time. The
// target's progress thread has to call serve(); the target's caller need do nothing.
//
// Thread rules: begin() and test() by one thread at a time, the other functions by any thread.
// Serving does not wait for the thread in begin() or test(), because CUDA may block that thread.
#pragma once

#include <array>
#include <atomic>
#include <memory>
#include <mutex>
#include <vector>

#include "device/device.h"
#include "transports/window.h"
#include "windows/staged_board.h"

namespace altorch {

class StagedAccess {
 public:
  // Memory of the GPU, zero at first, with which the constructor tries out serving.
  struct Spot {
    std::int64_t counted;
    std::uint32_t never;  // stays 0: the `ended` of jobs that also run after an abort
  };
  // `device`, `serving`: the same GPU, the second in a context of its own. `memory`, `own`: what
  // this rank has registered. `aborted`: abort flag in pinned memory; if it is not 0, no stream may
  // wait any more. Throws Error(kUnsupported) if kernels of `serving` do not reach memory of
  // `device`. Then all memory that was passed must be kept, as it must whenever this object ends
  // before its streams are done.
  StagedAccess(Device& device, Device& serving, StagedBoard board, int rank, int ranks, std::byte* memory,
               const Registered& own, Spot& spot, const std::uint32_t* aborted);

  // As those of RemoteMemory, for calls on other ranks' memory, but they ignore signals. kPending:
  // a part of the call is not enqueued yet, or its number has not come.
  State begin(WindowCall& call);
  State test(WindowCall& call);
  // The number of the last request to `target` in a lane that this rank's streams are past. The
  // target's answer does not say that, because a late answer takes back what end() has raised.
  std::uint32_t passed(int target, int lane) const;
  // The number of the last request that the streams have come to.
  std::uint32_t asked(int target, int lane) const;

  // Enqueues what peers ask of this rank, a few requests of each. True: there were requests.
  bool serve();
  // The stream on which serve() enqueues.
  Stream serving() const { return serving_; }
  // Enqueues a mark on that stream: when the stream gets there, it counts in `count`, and stores
  // the count in `shown`.
  void mark(WindowCount* count, std::uint32_t* shown);
  // Enqueues a job of this rank's own there. It takes place although the window has ended.
  void enqueue(WindowMove job);
  // Lets all streams go on that wait for an answer. A late answer sets its flag back to an earlier
  // request, so this must be repeated until is_idle().
  void end();
  // Whether all streams are past their requests. The thread rule of begin() holds.
  bool is_idle() const;

 private:
  struct Passage;  // a call in flight
  struct Lane {
    Stream stream = nullptr;
    bool busy = false;  // with a call that is not completely enqueued
    std::uint64_t used = 0;
    // Of the lane's last call.
    int target = 0;
    std::uint32_t number = 0;
  };
  // Some rows of a call, or a part of one row.
  struct Piece {
    std::uint32_t number = 0;       // of its request
    std::size_t begin = 0;          // in this rank's block
    std::size_t offset = 0;         // in the target's memory
    std::size_t row = 0, rows = 1;  // bytes of a row, rows
    std::size_t bytes() const { return row * rows; }
  };

  bool is_aborted() const;
  bool is_idle(const Lane& lane) const;
  bool take_lane(Passage& passage, Stream stream);
  bool has_room(const WindowCall& call, const Passage& passage) const;
  void ask(const WindowCall& call, Passage& passage);
  void hold(const WindowCall& call, const Passage& passage, std::uint32_t number);
  void take(const WindowCall& call, Passage& passage);
  void try_out();
  const std::uint32_t* never() const { return &spot_.never; }
  // Copies data of this rank. True: the copy takes place even if the window is aborted meanwhile.
  bool move(const WindowMove& job, bool to_host, Stream stream) const;
  void tell(Device& device, Flag& flag, const StagedBoard::Request& request, Stream stream) const;
  void carry_out(int origin, int lane, std::uint32_t number);
  static bool is_right(const WindowRequest& asked, std::size_t bytes);
  static std::size_t at(int other, int lane) {
    return static_cast<std::size_t>(other) * StagedBoard::kLanes + static_cast<std::size_t>(lane);
  }

  Device &device_, &serving_device_;
  const StagedBoard board_;
  const int rank_, ranks_;
  std::byte* const memory_;
  const Registered own_;
  const std::uint32_t* const aborted_;
  const Stream serving_;
  Spot& spot_;
  std::array<Lane, StagedBoard::kLanes> lanes_{};
  std::uint64_t uses_ = 0;
  const std::unique_ptr<std::atomic<std::uint32_t>[]> asked_;  // requests to each target, by lane
  std::mutex serving_now_;                                     // guards what follows
  std::vector<std::uint32_t> served_;                          // of each origin, by lane
  bool has_refused_ = false;
};

}  // namespace altorch
