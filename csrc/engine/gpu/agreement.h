// SPDX-License-Identifier: BSD-3-Clause
// What ranks of one node call on CUDA tensors, written down in memory that they share before anything is
// enqueued: whoever comes later sees that the calls differ, whichever route carries them, and enqueues
// nothing. It costs the device nothing, and the host some hundred nanoseconds.
//
// Of collectives every rank must agree on the call and on all calls before; of messages, and of what an
// all_to_all, a gather or a scatter moves, each pair of ranks on size and tag. Ranks are compared as long as
// they are not more than kKept calls apart; later the history of the calls tells.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/abort_note.h"
#include "engine/operation.h"

namespace altorch {

// Thread rules: check() by one thread at a time, the others by any.
class Agreement {
 public:
  static constexpr int kMostRanks = 64;
  static std::size_t bytes(int ranks);

  // `memory`: bytes(ranks), zero at first, shared by all ranks.
  Agreement(std::shared_ptr<std::byte> memory, int rank, int ranks);

  // Writes the call down and compares it. Throws Error(kMismatch) with both calls, after abort(), and
  // Error(kTransport) once the group was given up.
  void check(const Operation& operation);

  // Gives the group up for all ranks. The first reason stays.
  void abort(const std::string& why);
  // Why a rank gave it up, or nothing.
  std::optional<std::string> aborted() const;

 private:
  static constexpr std::uint64_t kKept = 1024, kKeptMessages = 64;
  struct Call;     // of a rank
  struct Message;  // one end of it
  enum End { kSender, kReceiver };

  AbortNote& note() const;
  Call& call(int rank, std::uint64_t number) const;
  Message& message(int from, int to, End end, std::uint64_t number) const;
  void compare_call(const Operation& operation);
  void compare_blocks(const Operation& operation);
  // The other end may have been written down before.
  void compare_message(const Operation& operation, int peer, End mine, std::int64_t bytes);
  [[noreturn]] void disagree(const std::string& text);

  const std::shared_ptr<std::byte> memory_;
  const int rank_, ranks_;
  std::uint64_t calls_ = 0;
  std::vector<std::uint64_t> sent_, received_;  // by peer
};

}  // namespace altorch
