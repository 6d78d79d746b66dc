// SPDX-License-Identifier: BSD-3-Clause
// Carries operations on device memory among the ranks of one node, through pinned memory that all
// of them share. The GPUs do all the work, and no host thread takes part.
//
//   post     wait(done with the slot, all)  copy out  raise(posted)
//   reduce   wait(posted, all)  copy in this rank's share of all parts, reduce it, copy the result out
//            raise(reduced)
//   collect  wait(reduced, all)  copy in the peers' results  raise(done)
//
// - Pieces go down (to the host) and up on different side streams. While one stream waits for a
//   flag, others keep both directions of the bus busy. Pieces of a reduction go up on one stream
//   per slot. If they are very many, they go down on the same streams.
// - A collective of a single piece stays on the caller's stream. There a kernel reads the peers'
//   parts across the bus, without copying them in first.
// - A longer all_reduce is a reduce_scatter and an all_gather, whose pieces go down behind those of
//   the reduce_scatter. Copies that mix both all the time reach only two thirds of the bus
//   bandwidth.
// - Small collectives, and small blocks between two ranks, take one kernel per rank. It sends a
//   number beside every four bytes, and needs no flags.
// - Reductions cut each piece into one share per rank. So every byte is reduced once, and crosses
//   the bus of a GPU at most twice, for any number of ranks.
// - Messages pass through separate slots for each pair of ranks.
#pragma once

#include <memory>
#include <mutex>
#include <optional>

#include "gpu/gpu_route.h"
#include "gpu/host_staged/board.h"
#include "gpu/host_staged/messages.h"
#include "gpu/host_staged/pieces.h"
#include "gpu/host_staged/protocols.h"
#include "gpu/host_staged/side_streams.h"
#include "gpu/ll_exchanges.h"
#include "select/rules.h"

namespace altorch {

class HostStaged : public GpuRoute {
 public:
  // The elements of a piece of a vector collective: of the vector, or of each block. The result is
  // the same on all ranks.
  static std::int64_t step_of(const Operation& operation, int size, std::size_t slot_bytes);

  // `own_gpus`: a kernel may wait for another rank's kernel (World::co_resident()).
  // `scratch`: scratch_bytes() of the board's layout, on the device.
  // `counted`: the number of pieces and messages to start from, for tests. The board's flags must
  // be at that number.
  HostStaged(std::unique_ptr<Device> device, Board board, DeviceMemory scratch, int rank, bool own_gpus,
             std::uint64_t counted = 0, Rules rules = Rules());
  static std::size_t scratch_bytes(const BoardLayout& layout);

  const std::uint32_t* abort_flag() const override { return board_.abort_flag(); }
  // Null if a kernel cannot wait for another rank's kernel.
  LlExchanges* ll_exchanges() override { return ll_ ? &*ll_ : nullptr; }

  const char* name() const override { return "host_staged"; }
  void enqueue(std::span<const Operation> operations, Stream stream) override;
  bool marks_results() const override { return true; }
  std::optional<Error> failure() override;
  void abort(const std::string& why) override;
  Held holds() override;

 private:
  // One piece of one collective in flight.
  struct PieceTransfer {
    const Operation& operation;
    const PieceCutter& cutter;
    std::int64_t index;
    std::uint32_t number;  // counts all pieces, modulo 2^32; the piece's flags are raised to it
    std::size_t slot;      // from the number without modulo: 2^32 need not be a multiple of the slots
    Stream down, up;
    std::byte* scratch;  // on the device, for the peers' parts; null: a kernel reads them where they lie
  };

  // Streams for copies of one direction: while one stream waits for a flag or raises one, the other
  // copies.
  static constexpr std::size_t kLanes = 2;
  // The streams of one collective: `downs` (0: each piece goes down on the stream on which it goes
  // up), and then `ups`.
  struct Lanes {
    SideStreams::Lanes streams;
    std::size_t downs, ups;
  };
  // The pieces whose reduction produces the input of an all_gather: `step` elements each, from
  // piece `first` on. Step 0: the input is there already.
  struct Source {
    std::uint64_t first;
    std::int64_t step;
  };

  void collective(const Operation& operation, Stream stream);
  void reduce_and_gather(const Operation& operation, Stream stream);
  // The operation must outlive the cutter.
  PieceCutter cut(const Operation& operation) const;
  Lanes fork(const Operation& operation, std::size_t pieces, Stream stream);
  // A single rank has no peer to wait for, and so nothing to overlap.
  bool overlap(std::size_t pieces) const { return pieces > 1 && size_ > 1; }
  bool two_steps_pay(const Operation& operation, std::size_t pieces) const;
  void enqueue_pieces(const Operation& operation, const PieceCutter& cutter, const Lanes& lanes,
                      const Source& source = {});
  void wait_for_source(const Source& source, const PieceCutter& cutter, const PieceTransfer& transfer);
  void post(const PieceTransfer& transfer);
  // Copies the peers' parts to the device.
  void fetch(const PieceTransfer& transfer);
  void reduce(const PieceTransfer& transfer);
  void collect(const PieceTransfer& transfer);

  // The share of a piece that `rank` reduces, in elements from the beginning of the piece. In its
  // own slot the rank posts nothing there, so the result takes that place.
  Range share(const PieceTransfer& transfer, int rank) const;
  std::byte* result_of(const PieceTransfer& transfer, int rank) const;
  // The part of each rank's slot that this rank reduces, in elements.
  Range own_part(const PieceTransfer& transfer) const;
  void wait_for_all(Flag Board::Post::*flag, std::uint32_t value, std::size_t slot, Stream stream);
  void wait_for(const Flag& flag, std::uint32_t value, Stream stream);

  void exchange(std::vector<BlockMessage>& messages, Stream stream);
  void send(const BlockMessage& message, Stream stream);
  void receive(const BlockMessage& message, Stream stream);

  const std::unique_ptr<Device> device_;
  Board board_;
  const DeviceMemory scratch_;
  const int rank_, size_;
  const Rules rules_;
  const StagedMemory staged_;
  std::optional<LlExchanges> ll_;
  SideStreams sides_;
  std::vector<std::int64_t> blocks_;         // of an all_reduce in two steps
  std::atomic<std::uint64_t> pieces_;        // of all collectives so far
  std::vector<std::uint64_t> sent_, taken_;  // messages, by peer
  std::atomic<std::uint64_t> messages_;      // the most of any pair
};

}  // namespace altorch
