// SPDX-License-Identifier: BSD-3-Clause
// Detects mismatched calls on CUDA tensors among the ranks of one node. Before a rank enqueues
// anything, it writes its call into memory that the ranks share. A rank that comes later compares
// its own call with it, whichever route carries the call. On a mismatch that rank enqueues nothing.
// This costs the device nothing, and the host a few hundred nanoseconds.
//
// All ranks must agree on a collective, and on all calls before it. For messages, and for the
// blocks that an all_to_all, a gather or a scatter moves, each pair of ranks must agree on size and
// tag. Ranks compare a collective as long as they are at most kKept calls apart; after that, the
// history of the calls shows the mismatch. Messages and blocks of a pair are not in that history:
// they are compared while the two are at most kKeptMessages of them apart.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/abort_note.h"
#include "base/operation.h"

namespace altorch {

// Thread rules: check() by one thread at a time, the other functions by any thread.
class Agreement {
 public:
  static constexpr int kMostRanks = 64;
  static std::size_t bytes(int ranks);

  // `ranks`: of the group, those of this rank's node, ascending. `memory`: bytes() of as many, zero
  // at first, which they share.
  Agreement(std::shared_ptr<std::byte> memory, int rank, std::vector<int> ranks);

  // To be called once for each operation, in the same order on all ranks; does not wait. Writes the
  // call down and compares it with the calls of the peers on this node. On a mismatch, aborts and
  // throws Error(kMismatch), which names both calls. Throws Error(kTransport) once the group is
  // aborted. `even`: the route assumes that all ranks have the same count of a block.
  void check(const Operation& operation, bool even = false);

  // Aborts the group for all ranks of this node. The first reason stays.
  void abort(const std::string& why);
  // Why a rank aborted the group, or nothing.
  std::optional<std::string> aborted() const;

 private:
  static constexpr std::uint64_t kKept = 1024, kKeptMessages = 64;
  struct Call;     // of one rank
  struct Message;  // one end of a message
  enum End { kSender, kReceiver };

  AbortNote& note() const;
  // Its place among the ranks of this node; kElsewhere: it is on another.
  static constexpr int kElsewhere = -1;
  int place_of(int rank) const;
  Call& call(int place, std::uint64_t number) const;
  // Between places.
  Message& message(int from, int to, End end, std::uint64_t number) const;
  void compare_call(const Operation& operation, bool even);
  void compare_blocks(const Operation& operation);
  // Writes down this rank's end, and compares it with the peer's end if that is there already.
  void compare_message(const Operation& operation, int peer, End mine, std::int64_t bytes);
  [[noreturn]] void disagree(const std::string& text);

  const std::shared_ptr<std::byte> memory_;
  const int rank_;
  const std::vector<int> ranks_;
  std::vector<int> place_of_rank_;  // up to the last of this node
  std::uint64_t calls_ = 0;
  std::vector<std::uint64_t> sent_, received_;  // by place of the peer
};

}  // namespace altorch
