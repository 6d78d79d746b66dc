// SPDX-License-Identifier: BSD-3-Clause
// The layout of the pinned memory that all ranks of a node share. It has slots where each rank
// posts its part of a collective, slots for messages between two ranks, and flags by which GPUs
// tell each other their progress.
//
// Every rank computes the same layout, and counts rounds in the same way: all ranks take the slots
// in turn, because their collectives come in the same order.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/abort_note.h"
#include "base/flag.h"
#include "device/device.h"
#include "gpu/ll_exchanges.h"

namespace altorch {

struct BoardLayout {
  int ranks = 1;
  std::size_t slots = 6;  // of each rank, for collectives
  std::size_t slot_bytes = 4 << 20;
  std::size_t message_slots = 2;  // of each ordered pair of ranks, for messages
  std::size_t message_bytes = 1 << 20;
  std::size_t ll_bytes = 32 << 10;          // what a rank may send in a small exchange
  int ll_blocks = LlExchange::kMostBlocks;  // thread blocks of its kernel

  // The most bytes that a rank may send to one peer in a pairwise exchange; 0: there are too many
  // ranks, or only one.
  std::size_t pair_bytes() const;
  LlSlotShape ll_shape() const;
  LlSlotShape pair_shape() const;

  // The largest pieces for which everything fits into `bytes`.
  static BoardLayout fitting(int ranks, std::size_t bytes);
  std::size_t bytes() const;
};

// Where each part of the memory begins, in bytes.
struct BoardOffsets {
  explicit BoardOffsets(const BoardLayout& layout);
  std::size_t posts, messages, ll, pairs, data, message_data, end;
};

// Thread rules: as base/flag.h; abort() by any thread.
class Board {
 public:
  // `memory`: layout.bytes(), zero at first, shared by all ranks.
  Board(PinnedMemory memory, const BoardLayout& layout, int rank);

  const BoardLayout& layout() const { return layout_; }

  // The progress of a rank in a slot. posted: its part is there. reduced: it has reduced its share.
  // done: it has read all that it needs from the slots of this number of all ranks.
  struct Post {
    Flag posted, reduced, done;
  };
  Post& post(int rank, std::size_t slot) const;
  std::byte* data(int rank, std::size_t slot) const;

  // A slot of the messages from one rank to another: filled by the sender, emptied by the receiver.
  struct MessageSlot {
    Flag filled, emptied;
  };
  MessageSlot& message_slot(int from, int to, std::size_t slot) const;
  std::byte* message_data(int from, int to, std::size_t slot) const;

  // The slot of `rank` for all ranks in small exchanges, and that of `from` for `to` in pairwise
  // exchanges (gpu/ll_exchanges.h).
  std::uint64_t* ll_place(int rank) const;
  std::uint64_t* pair_place(int from, int to) const;

  // Aborts on all ranks: raises every flag that this rank may wait for above the numbers of its
  // last piece and of its last message, so that no stream is left waiting. To be repeated while
  // streams are busy: a GPU that goes on may set its flags back.
  void abort(const std::string& why, std::uint32_t pieces, std::uint32_t messages);
  // Why a rank aborted, or nothing.
  std::optional<std::string> aborted() const;
  // Not 0 once a rank has aborted.
  const std::uint32_t* abort_flag() const;

 private:
  AbortNote& note() const;
  template <typename Object>
  Object* at(std::size_t offset) const {
    return reinterpret_cast<Object*>(memory_.get() + offset);
  }
  // The index of one of `number` things that each ordered pair of ranks has.
  std::size_t pair(int from, int to, std::size_t number, std::size_t index) const;

  const PinnedMemory memory_;
  const BoardLayout layout_;
  const BoardOffsets offsets_;
  const int rank_;
};

}  // namespace altorch
