// SPDX-License-Identifier: BSD-3-Clause
// Access to memory of GPUs that map nothing of each other, through pinned memory that their ranks share.
//
//   origin's stream   copy into a slot, raise(asked)                                       wait(answered), copy out of it
//   target's host                                    sees it, gives a stream of its own:
//   target's stream                                  copy, add or count, raise(answered)
//
// The target serves by kernels alone, in a context of CUDA beside the one that its caller uses: that one may be held up by a
// call that waits for this very rank (device/cuda_context.h).
//
// A call has taken effect when its stream is past it, as on every other way: what comes next on the stream, a signal among
// it, comes after. Large calls go in pieces, several at a time. The target's progress thread has to look, its caller
// has not.
//
// Thread rules: one thread at a time for begin() and test(), any for the rest: who is asked does not wait for who asks, whom
// CUDA may hold up.
#pragma once

#include <array>
#include <atomic>
#include <memory>
#include <mutex>
#include <vector>

#include "device/device.h"
#include "engine/window/staged_board.h"
#include "transports/window.h"

namespace altorch {

class StagedAccess {
 public:
  // Memory of the GPU, zero at first, in which serving is tried out.
  struct Spot {
    std::int64_t counted;
    std::uint32_t never;  // stays 0: the end of what goes on after all was given up
  };
  // `device`, `serving`: two of the same GPU, the second of a context of its own. `memory`, `own`: what this rank has
  // registered. `given_up`: not 0 once nothing is to be waited for; in pinned memory. Throws Error(kUnsupported) where the
  // second does not reach the memory of the first; what it was given must stay then, as after any end that is not waited for.
  StagedAccess(Device& device, Device& serving, StagedBoard board, int rank, int ranks, std::byte* memory,
               const Registered& own, Spot& spot, const std::uint32_t* given_up);

  // As those of RemoteMemory, of calls on other ranks' memory; signals are not its business. kPending: some of it is still to
  // be enqueued, or a number to come.
  State begin(WindowCall& call);
  State test(WindowCall& call);
  // How far streams are with what was asked of the target in a lane. Its answer alone does not say that: one that comes late
  // takes back what end() has raised.
  std::uint32_t passed(int target, int lane) const;
  // The same of those that it has come to.
  std::uint32_t asked(int target, int lane) const;

  // Enqueues what others ask of this rank, a few calls of each; true: there was something.
  bool serve();
  // The stream that it goes on.
  Stream serving() const { return serving_; }
  // Counts, and shows it, when that stream has come as far as it is now.
  void mark(WindowCount* count, std::uint32_t* shown);
  // Lets all streams go on that wait for an answer. An answer that comes late takes that back for those before it, so that it
  // is to be repeated until is_idle().
  void end();
  // Whether all streams are past what was asked. As begin().
  bool is_idle() const;

 private:
  struct Passage;  // a call on its way
  struct Lane {
    Stream stream = nullptr;
    bool busy = false;  // by a call that is not all enqueued
    std::uint64_t used = 0;
    // Of the last call.
    int target = 0;
    std::uint32_t number = 0;
  };
  // Rows, or a part of one.
  struct Piece {
    std::uint32_t number = 0;       // of its request
    std::size_t begin = 0;          // in this rank's block
    std::size_t offset = 0;         // in the target's memory
    std::size_t row = 0, rows = 1;  // bytes of a row, rows
    std::size_t bytes() const { return row * rows; }
  };

  bool is_given_up() const;
  bool is_idle(const Lane& lane) const;
  bool take_lane(Passage& passage, Stream stream);
  bool has_room(const WindowCall& call, const Passage& passage) const;
  void ask(const WindowCall& call, Passage& passage);
  void hold(const WindowCall& call, const Passage& passage, std::uint32_t number);
  void take(const WindowCall& call, Passage& passage);
  void try_out();
  const std::uint32_t* never() const { return &spot_.never; }
  // Of this rank's own data. Whether it is done even where all was given up meanwhile.
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
  const std::uint32_t* const given_up_;
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
