// Where ranks that wait too long compare notes, through the store. Costs nothing until an operation stalls.
//
// A stalled rank writes down what it waits in; a rank that refused an operation writes down why. Who reads that a peer
// waits in another operation, or gave this one up, knows that it waits in vain.
// Thread rules: any thread.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "common/key_value_store.h"

namespace altorch {

class StallBoard {
 public:
  StallBoard(std::shared_ptr<KeyValueStore> store, std::string prefix, int rank, int size);

  void publish_wait(std::uint64_t sequence, std::uint64_t fingerprint);
  void publish_failure(std::uint64_t sequence, const std::string& cause);

  // What the peers' notes prove about operation `sequence`, if anything.
  struct Finding {
    int rank;                              // who wrote the note, in the group
    std::optional<std::string> gave_up;    // why the rank gave the operation up, or
    std::uint64_t fingerprint = 0;         // the other operation that it waits in under the same number
  };
  std::optional<Finding> compare(std::uint64_t sequence, std::uint64_t fingerprint);
  // "rank 2 waits in #4, rank 3 has not said anything": for the message of a timeout.
  std::string whereabouts(std::uint64_t sequence);

 private:
  std::optional<std::string> note(const std::string& key);
  std::string wait_key(int rank) const;
  std::string failure_key(std::uint64_t sequence) const;

  std::shared_ptr<KeyValueStore> store_;
  std::string prefix_;
  int rank_, size_;
};

}  // namespace altorch
