// Where ranks that wait too long compare notes, through the store. Costs nothing until an operation stalls.
//
// A stalled rank writes down what it waits in; a rank that refused an operation writes down why. Who reads
// that a peer waits in another operation, or gave this one up, knows that it waits in vain. A rank that is
// done with its part (a sender) waits nowhere: each remembers its latest calls, and answers for them
// (inquiries.h). Thread rules: any thread; record() one at a time.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "common/key_value_store.h"

namespace altorch {

class StallBoard {
 public:
  // `group` names the group for the whole job.
  StallBoard(std::shared_ptr<KeyValueStore> store, std::string group, int rank, int size);

  const std::string& group() const { return group_; }

  // Remembers a call of this rank, for later questions.
  void record(std::uint64_t sequence, std::uint64_t fingerprint) {
    Call& call = calls_[sequence % calls_.size()];
    call.sequence.store(0, std::memory_order_relaxed);
    call.fingerprint.store(fingerprint, std::memory_order_release);
    call.sequence.store(sequence, std::memory_order_release);
  }

  void publish_wait(std::uint64_t sequence, std::uint64_t fingerprint);
  void publish_failure(std::uint64_t sequence, const std::string& cause);
  // A peer waits in this operation: tells it if this rank called another one under that number.
  void answer(std::uint64_t sequence, std::uint64_t fingerprint);

  // What the peers' notes prove about operation `sequence`, if anything.
  struct Finding {
    int rank;                            // who wrote the note, in the group
    std::optional<std::string> gave_up;  // why the rank gave the operation up, or
    std::uint64_t fingerprint = 0;       // the other operation that it called under the same number
  };
  std::optional<Finding> compare(std::uint64_t sequence, std::uint64_t fingerprint);
  // "rank 2 waits in #4, rank 3 has not said anything": for the message of a timeout.
  std::string whereabouts(std::uint64_t sequence);

 private:
  struct Call {
    std::atomic<std::uint64_t> sequence{0}, fingerprint{0};
  };

  void set(const std::string& key, const std::string& value);
  std::optional<std::string> note(const std::string& key);
  std::optional<std::uint64_t> called(std::uint64_t sequence) const;

  std::shared_ptr<KeyValueStore> store_;
  const std::string group_;
  const int rank_, size_;
  std::array<Call, 128> calls_;
};

}  // namespace altorch
