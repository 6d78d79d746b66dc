// SPDX-License-Identifier: BSD-3-Clause
// An allgather of short texts through the store, for ranks that have no other connection yet. It ends with an error
// that names the missing ranks, where a later step would wait for them without end.
//
// A rank makes a fixed number of requests, however many ranks there are, and then polls: rank 0 polls a counter, the
// other ranks poll the table that rank 0 writes. Thread rules: any thread.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "rendezvous/key_value_store.h"

namespace altorch {

// Returns the word of every rank, by rank, when all ranks have called it. Throws Error that names the missing ranks:
// "rank 3 has not come <purpose>: ...", also when store.check_peers() says why they will not come. Each call needs a
// new `key`.
std::vector<std::string> store_allgather(KeyValueStore& store, const std::string& key, int rank, int size,
                                         std::chrono::milliseconds timeout, const std::string& purpose,
                                         const std::string& word = "1");

// The same, where each rank brings the reason why it cannot go on, or an empty text. Returns the first reason, "on rank 3
// ...", the same on every rank.
std::optional<std::string> first_unsupported_reason(KeyValueStore& store, const std::string& key, int rank,
                                                    int size, std::chrono::milliseconds timeout,
                                                    const std::string& purpose,
                                                    const std::string& unsupported_reason);

// Rank 0, which may host the store, must not end while other ranks still read there: it returns when all other ranks
// have called this function, or after `patience`. Never throws.
void leave_in_turn(KeyValueStore& store, const std::string& key, int rank, int size,
                   std::chrono::milliseconds patience) noexcept;

}  // namespace altorch
