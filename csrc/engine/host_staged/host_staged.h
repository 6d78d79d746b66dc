// SPDX-License-Identifier: BSD-3-Clause
// Operations on device memory among ranks of one node, by way of pinned memory that all of them share: the
// GPUs do everything themselves, no host thread takes part.
//
//   post     wait(done with the slot, all)  copy out  raise(posted)
//   reduce   wait(posted, all)  copy the own share of everybody's part in, reduce it, copy the result out
//            raise(reduced)
//   collect  wait(reduced, all)  copy the others' results in  raise(done)
//
// What goes down and what comes up have side streams of their own, so that while one waits for a flag others
// keep both directions of the bus busy; pieces that are reduced come up on as many as there are slots, and
// very many go down there, too. A collective of a single piece stays on the caller's stream, where a kernel
// reads the others' parts across the bus instead of copying them in first. A longer all_reduce is a
// reduce_scatter and an all_gather, whose pieces go down behind those of the first: copies that mix both all
// the time reach two thirds of the bus. Small collectives take one kernel per rank, with a number beside
// every four bytes in place of flags; so do small blocks between two ranks. Operations that reduce cut each
// piece into a share per rank: every byte is reduced once, and crosses the bus of a GPU twice at most,
// whatever the number of ranks. Messages pass through slots of their own for each pair of ranks.
#pragma once

#include <memory>
#include <mutex>
#include <optional>

#include "engine/gpu/gpu_route.h"
#include "engine/host_staged/board.h"
#include "engine/host_staged/messages.h"
#include "engine/host_staged/pieces.h"
#include "engine/host_staged/side_streams.h"
#include "engine/gpu/small_exchanges.h"

namespace altorch {

class HostStaged : public GpuRoute {
 public:
  // Of a vector collective that goes in pieces, the elements of each (of the vector, or of each block), from what
  // all ranks know alike.
  static std::int64_t step_of(const Operation& operation, int size, std::size_t slot_bytes);

  // `own_gpus`: no two ranks share a GPU, so that a kernel may wait for another rank's.
  // `scratch`: scratch_bytes() of the board's layout, on the device.
  // `counted`: pieces and messages before the first, for tests; the board's flags must be at that number.
  HostStaged(std::unique_ptr<Device> device, Board board, DeviceMemory scratch, int rank, bool own_gpus,
             std::uint64_t counted = 0);
  static std::size_t scratch_bytes(const BoardLayout& layout);

  // Null where a kernel cannot wait for another rank's.
  SmallExchanges* small_exchanges() override { return small_ ? &*small_ : nullptr; }

  const char* name() const override { return "host_staged"; }
  void enqueue(std::span<const Operation> operations, Stream stream) override;
  bool marks_results() const override { return true; }
  std::optional<Error> failure() override;
  void abort(const std::string& why) override;
  Held holds() override;

 private:
  // One piece of one collective on its way.
  struct PieceTransfer {
    const Operation& operation;
    const PieceCutter& cutter;
    std::int64_t index;
    std::uint32_t number;  // of all pieces so far, modulo 2^32; its flags are raised to it
    std::size_t slot;      // of the whole number: 2^32 need not be a multiple of the slots
    Stream down, up;
    std::byte* scratch;  // on the device, for the others' parts; null: a kernel reads them where they lie
  };

  // For copies of one direction: while one stream waits for a flag or raises one, the other copies.
  static constexpr std::size_t kLanes = 2;
  // The streams of one collective: `downs` (0: each piece goes down where it comes up) and then `ups`.
  struct Lanes {
    SideStreams::Lanes streams;
    std::size_t downs, ups;
  };
  // The pieces that reduced what a collective gathers, of `step` elements each, from the `first` on. Step 0:
  // it gathers what is there.
  struct Source {
    std::uint64_t first;
    std::int64_t step;
  };

  void collective(const Operation& operation, Stream stream);
  void reduce_and_gather(const Operation& operation, Stream stream);
  // The operation must outlive the cutter.
  PieceCutter cut(const Operation& operation) const;
  Lanes fork(const Operation& operation, std::size_t pieces, Stream stream);
  // A single rank has nobody to copy beside, nor to wait for.
  bool overlap(std::size_t pieces) const { return pieces > 1 && size_ > 1; }
  bool two_steps_pay(const Operation& operation, std::size_t pieces) const;
  void enqueue_pieces(const Operation& operation, const PieceCutter& cutter, const Lanes& lanes,
                      const Source& source = {});
  void wait_for_source(const Source& source, const PieceCutter& cutter, const PieceTransfer& transfer);
  void post(const PieceTransfer& transfer);
  // Copies the others' parts to the device.
  void fetch(const PieceTransfer& transfer);
  void reduce(const PieceTransfer& transfer);
  void collect(const PieceTransfer& transfer);

  // The part of a piece that `rank` reduces, in elements from the beginning of the piece. In its own slot it
  // posts nothing there, so the result takes that place.
  PieceCutter::Range share(const PieceTransfer& transfer, int rank) const;
  std::byte* result_of(const PieceTransfer& transfer, int rank) const;
  // The same of everybody's slot, in elements.
  PieceCutter::Range own_part(const PieceTransfer& transfer) const;
  void wait_for_all(Flag Board::Post::*flag, std::uint32_t value, std::size_t slot, Stream stream);
  void wait_for(const Flag& flag, std::uint32_t value, Stream stream);

  void exchange(std::vector<BlockMessage>& messages, Stream stream);
  void send(const BlockMessage& message, Stream stream);
  void receive(const BlockMessage& message, Stream stream);

  const std::unique_ptr<Device> device_;
  Board board_;
  const DeviceMemory scratch_;
  const int rank_, size_;
  std::optional<SmallExchanges> small_;
  SideStreams sides_;
  std::vector<std::int64_t> blocks_;         // of an all_reduce in two steps
  std::atomic<std::uint64_t> pieces_;        // of all collectives so far
  std::vector<std::uint64_t> sent_, taken_;  // messages, by peer
  std::atomic<std::uint64_t> messages_;      // the most of any pair
};

}  // namespace altorch
