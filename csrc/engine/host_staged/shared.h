// Operations on device memory among ranks of one node, by way of pinned memory that all of them share: the
// GPUs do everything themselves, no host thread takes part.
//
//   down:  wait(everybody done with the slot) copy out  raise(posted)
//   up:                                                    wait(posted, all) reduce own share  raise(reduced)
//                                                             wait(reduced, all) copy in  raise(done)
//
// Small collectives take one kernel per rank instead, with a number beside every four bytes in place of
// flags. Operations that reduce cut each piece into a share per rank: every byte is reduced once, and crosses
// the bus of a GPU twice at most, whatever the number of ranks. Messages pass through slots of their own for
// each pair of ranks.
#pragma once

#include <memory>
#include <mutex>

#include "engine/gpu_route.h"
#include "engine/host_staged/board.h"
#include "engine/host_staged/messages.h"
#include "engine/host_staged/pieces.h"
#include "engine/host_staged/side_streams.h"

namespace altorch {

class Shared : public GpuRoute {
 public:
  // How a vector collective goes, from what all ranks know alike: in one kernel, or in pieces of so many
  // elements (of the vector, or of each block).
  static bool is_small(const Operation& operation, int size, std::size_t small_bytes);
  static std::int64_t step_of(const Operation& operation, int size, std::size_t slot_bytes);

  // `own_gpus`: no two ranks share a GPU, so that a kernel may wait for another rank's.
  Shared(std::unique_ptr<Device> device, Board board, int rank, bool own_gpus);

  const char* name() const override { return "host_staged"; }
  void enqueue(std::span<const Operation> operations, Stream stream) override;
  std::optional<Error> failure() override;
  void abort(const std::string& why) override;

 private:
  // One piece of one collective on its way.
  struct Turn {
    const Operation& operation;
    const PieceCutter& cutter;
    std::int64_t index;
    std::uint32_t number;  // of all pieces so far; what its flags are raised to
    std::size_t slot;
    Stream down, up;
  };

  void small(const Operation& operation, Stream stream);
  void collective(const Operation& operation, Stream stream);
  void post(const Turn& turn);
  void reduce(const Turn& turn);
  void collect(const Turn& turn);
  void check_agreement(const Operation& operation);

  // The part of a piece that `rank` reduces, in elements from the beginning of the piece.
  PieceCutter::Range share(const Turn& turn, int rank) const;
  std::byte* result_of(const Turn& turn, int rank) const;
  void wait_for_all(Flag Board::Post::*flag, std::uint32_t value, std::size_t slot, Stream stream);
  void wait_for(const Flag& flag, std::uint32_t value, Stream stream);

  void exchange(std::vector<BlockMessage>& messages, Stream stream);
  void send(const BlockMessage& message, Stream stream);
  void receive(const BlockMessage& message, Stream stream);

  const std::unique_ptr<Device> device_;
  Board board_;
  const int rank_, size_;
  const bool own_gpus_;
  SideStreams sides_;
  std::uint64_t sequence_ = 0;               // of collectives
  std::uint32_t exchanges_ = 0;              // small ones
  std::atomic<std::uint32_t> pieces_{0};     // of all collectives so far
  std::vector<std::uint32_t> sent_, taken_;  // letters, by peer
  std::atomic<std::uint32_t> letters_{0};    // the most of any pair
};

}  // namespace altorch
