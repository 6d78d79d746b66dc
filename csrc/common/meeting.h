// All ranks of a group come together in the store, before something that would wait without end for one that
// is missing. A rank makes a fixed number of requests, however many ranks there are, and polls: rank 0 a
// counter, the others the table of everybody's words that rank 0 writes. Thread rules: any thread.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "common/key_value_store.h"

namespace altorch {

// Returns when all have come, with the word that each has brought. Throws Error that names the ranks that
// have not: "rank 3 has not come <purpose>: ...", also when store.check_peers() says why they will not. `key` is
// new for every meeting.
std::vector<std::string> meet(KeyValueStore& store, const std::string& key, int rank, int size,
                              std::chrono::milliseconds timeout, const std::string& purpose,
                              const std::string& word = "1");

// The same of ranks each of which brings why it cannot go on, or nothing. Returns what the first of them says, "on rank 3
// ...", alike on every rank.
std::optional<std::string> meet_able(KeyValueStore& store, const std::string& key, int rank, int size,
                                     std::chrono::milliseconds timeout, const std::string& purpose,
                                     const std::string& obstacle);

// The rank that hosts the store must not end while others still read there: rank 0 returns when all others
// have called it, or `patience` has passed. Never throws.
void leave_in_turn(KeyValueStore& store, const std::string& key, int rank, int size,
                   std::chrono::milliseconds patience) noexcept;

}  // namespace altorch
