// SPDX-License-Identifier: BSD-3-Clause
// The ranks of a group that wait too long compare their calls through the store. This costs nothing
// until an operation stalls, and then a few store requests a second from each rank.
//
// The first rank that stalls in an operation publishes its call, and its peers compare theirs with
// it. A rank that refuses an operation publishes the reason. A rank whose operation fails publishes
// that the group is closed. A rank that has finished its part (a sender) does not wait, so each
// rank records its latest calls and answers queries about them (desync_queries.h).
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

// A collective as its rank called it. A group numbers its CPU and its CUDA collectives apart,
// because ranks may call the two kinds in different orders. Ranks compare only calls of one kind.
struct CallNote {
  std::uint64_t sequence = 0, fingerprint = 0;
  std::uint64_t history = 0;  // of the calls of this kind before it
  bool on_gpu = false;
  // The fingerprint of a call that its rank refused; no operation has it.
  static constexpr std::uint64_t kRefused = ~std::uint64_t{0};
  bool agrees_with(const CallNote& other) const {
    return fingerprint == other.fingerprint && history == other.history;
  }
};

class DesyncBoard {
 public:
  // `group` names the group for the whole job.
  DesyncBoard(std::shared_ptr<KeyValueStore> store, std::string group, int rank, int size);

  const std::string& group() const { return group_; }

  // Records a call of this rank, for later queries.
  void record(const CallNote& note) {
    auto& calls = calls_[note.on_gpu];
    Call& call = calls[note.sequence % calls.size()];
    call.sequence.store(0, std::memory_order_relaxed);
    call.fingerprint.store(note.fingerprint, std::memory_order_release);
    call.history.store(note.history, std::memory_order_release);
    call.sequence.store(note.sequence, std::memory_order_release);
  }

  // These five write to the store. They throw nothing: if the store does not answer, nothing is
  // published.
  void publish_wait(const CallNote& note);
  // This rank has refused the operation; nothing of it was started.
  void publish_refusal(const CallNote& note, const std::string& cause);
  // The operation failed after it was started, and this rank will run no other.
  void publish_closed(const std::string& operation, const Error& cause);
  // This rank leaves the group in good order. `finished`: the sequence number of its last
  // collective on CPU tensors.
  void publish_left(std::uint64_t finished);
  // Answers a query: if this rank made another call under that number, publishes its own.
  void answer(const CallNote& note);

  // What a peer has published about an operation, or about the group.
  struct Finding {
    int rank = 0;                                          // the peer, a rank of the group
    bool closed = false;                                   // it has told all ranks that it closed the group
    std::optional<Error> aborted = {};                     // why it refused or aborted the call; else
    CallNote called = {};                                  // what it called under the same number
    std::optional<CallNote> first_difference_theirs = {};  // the first earlier call that is known to differ,
    std::optional<CallNote> first_difference_mine = {};    // and this rank's under that number
  };
  // For a collective that waits: call it about once a second. Returns what a peer has published
  // that this rank's call does not agree with. If there is none, publishes this rank's call, unless
  // a peer's stands there, and returns nothing; also if the store does not answer. Throws nothing.
  std::optional<Finding> compare(const CallNote& note);
  // Whether the published call of this operation is this rank's. Then this rank asks DesyncQueries.
  bool is_first_waiter(const CallNote& note) const {
    return first_in_[note.on_gpu].load(std::memory_order_relaxed) == note.sequence;
  }
  // As compare(), but finds only that a peer has closed the group.
  std::optional<Finding> closed();
  // What `peer` finished before it left the group in good order, or nothing.
  std::optional<std::uint64_t> left(int peer);
  // Publishes that a message to or from `peer` waits. Returns whether the peer's end is on a GPU,
  // or nothing if the peer does not wait for it.
  std::optional<bool> compare_message(int peer, bool sends, std::int64_t tag, bool on_gpu);
  // Where the ranks of the group wait, for the text of a timeout. One rank reads the keys of all,
  // and publishes the result for its peers.
  struct Waiting {
    std::string text;            // "rank 2 waits in #4 (CUDA); ranks not waiting in this group: 3"
    std::vector<int> elsewhere;  // the ranks that do not wait in this operation
  };
  Waiting waiting(const CallNote& note);

 private:
  struct Call {
    std::atomic<std::uint64_t> sequence{0}, fingerprint{0}, history{0};
  };

  bool is_peer(int rank) const { return rank >= 0 && rank != rank_; }
  bool set(const std::string& key, const std::string& value);
  std::optional<std::string> note(const std::string& key);
  std::string waiting_ranks(const CallNote& note);
  std::optional<std::string> waiting_ranks_shared(const CallNote& note);
  std::optional<CallNote> called(std::uint64_t sequence, bool on_gpu) const;
  std::string encode(const CallNote& note) const;
  std::optional<Finding> difference(const std::string& theirs, const CallNote& mine) const;

  std::shared_ptr<KeyValueStore> store_;
  const std::string group_;
  const int rank_, size_;
  std::atomic<std::uint64_t> waits_{0};                   // that this rank has published, of both kinds
  std::array<std::array<Call, 512>, 2> calls_;            // on the CPU, on GPUs
  std::array<std::atomic<std::uint64_t>, 2> first_in_{};  // per kind, as calls_
};

}  // namespace altorch
