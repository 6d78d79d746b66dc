// SPDX-License-Identifier: BSD-3-Clause
// Where ranks that wait too long compare their calls, through the store. Costs nothing until an
// operation stalls, and then a few requests a second from each rank, however many there are.
//
// The first rank that stalls in an operation writes down what it called, and its peers compare
// their calls with that. A rank that refused an operation writes down why. A rank whose operation
// failed writes down that the group is closed. A rank that has finished its part (a sender) waits
// nowhere. So each rank remembers its latest calls, and answers questions about them (inquiries.h).
// Thread rules: any thread; record() one at a time.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "base/error.h"
#include "rendezvous/key_value_store.h"

namespace altorch {

// A collective as its rank called it.
struct CallNote {
  std::uint64_t sequence = 0, fingerprint = 0;
  std::uint64_t history = 0;  // of the calls before it
  // The fingerprint of a call that its rank refused; no operation has it.
  static constexpr std::uint64_t kRefused = ~std::uint64_t{0};
  bool agrees_with(const CallNote& other) const {
    return fingerprint == other.fingerprint && history == other.history;
  }
};

class StallBoard {
 public:
  // `group` names the group for the whole job.
  StallBoard(std::shared_ptr<KeyValueStore> store, std::string group, int rank, int size);

  const std::string& group() const { return group_; }

  // Remembers a call of this rank, for later questions.
  void record(const CallNote& note) {
    Call& call = calls_[note.sequence % calls_.size()];
    call.sequence.store(0, std::memory_order_relaxed);
    call.fingerprint.store(note.fingerprint, std::memory_order_release);
    call.history.store(note.history, std::memory_order_release);
    call.sequence.store(note.sequence, std::memory_order_release);
  }

  void publish_wait(std::uint64_t sequence);
  // This rank refused the operation before it began.
  void publish_refusal(std::uint64_t sequence, const std::string& cause);
  // The operation failed under way, and this rank will carry out no other.
  void publish_closed(const std::string& operation, const Error& cause);
  // A peer waits in this operation: tells it if this rank called another one under that number.
  void answer(const CallNote& note);

  // What a peer has written about operation `note`, or about the whole group.
  struct Finding {
    int rank = 0;                                // the rank of the group that wrote it
    bool closed = false;                         // it has told all ranks that it closed the group
    std::optional<Error> aborted = {};           // why the rank refused or aborted the call, or
    CallNote called = {};                        // what it called under the same number
    std::optional<CallNote> parted_theirs = {};  // the first earlier call that is known to differ,
    std::optional<CallNote> parted_mine = {};    // and this rank's under that number
  };
  std::optional<Finding> compare(const CallNote& note);
  // Whether the peers compare themselves with this rank, which is then the one that asks questions.
  bool is_first(std::uint64_t sequence) const {
    return first_in_.load(std::memory_order_relaxed) == sequence;
  }
  // Only whether a peer has closed the group.
  std::optional<Finding> closed();
  // A message to or from `peer` waits: writes that down. Returns whether the other end is on a GPU,
  // if it waits, too.
  std::optional<bool> meet_message(int peer, bool sends, std::int64_t tag, bool on_gpu);
  // For the message of a timeout. All ranks ask at the same time: one looks, and tells its peers.
  struct Whereabouts {
    std::string text;            // "rank 2 waits in #4; ranks not waiting in this group: 3"
    std::vector<int> elsewhere;  // the ranks that do not wait in this operation
  };
  Whereabouts whereabouts(std::uint64_t sequence);

 private:
  struct Call {
    std::atomic<std::uint64_t> sequence{0}, fingerprint{0}, history{0};
  };

  bool is_peer(int rank) const { return rank >= 0 && rank != rank_; }
  bool set(const std::string& key, const std::string& value);
  std::optional<std::string> note(const std::string& key);
  std::string look_round(std::uint64_t sequence);
  std::optional<std::string> look_round_once_for_all(std::uint64_t sequence);
  std::optional<CallNote> called(std::uint64_t sequence) const;
  std::string encode(const CallNote& note) const;
  std::optional<Finding> difference(const std::string& theirs, const CallNote& mine) const;

  std::shared_ptr<KeyValueStore> store_;
  const std::string group_;
  const int rank_, size_;
  std::array<Call, 512> calls_;
  std::atomic<std::uint64_t> first_in_{0};
};

}  // namespace altorch
