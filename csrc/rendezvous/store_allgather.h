// SPDX-License-Identifier: BSD-3-Clause
// An allgather of short texts through the store, for ranks that have no other connection yet. If
// ranks are missing at the timeout, it throws an error that names them. Call it before a step that
// would wait for missing ranks forever.
//
// A rank makes a fixed number of requests, however many ranks there are, and then polls: rank 0
// polls a counter, the other ranks poll the table that rank 0 writes. Thread rules: those of the
// store.
#pragma once

#include <chrono>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "rendezvous/key_value_store.h"

namespace altorch {

// Blocks until all ranks have called it, and returns the texts that they passed as `info`, by rank.
// Each call needs a new `key`, the same on all ranks. `purpose` completes the text of an error:
// "rank 3 has not come <purpose>: ...". Throws Error(kTimeout) at the timeout, and earlier what the
// store or store.check_peers() throws; each names the missing ranks, for which it asks the store
// some seconds longer. `info` may hold any bytes. If it throws on one rank, it may return on
// others: decide_commit() is for ranks that must all agree (commit_decision.h).
std::vector<std::string> store_allgather(KeyValueStore& store, const std::string& key, int rank, int size,
                                         std::chrono::milliseconds timeout, const std::string& purpose,
                                         const std::string& info = "1");

// An allgather of the reasons why ranks cannot go on; a rank that can go on passes an empty text.
// Returns the reason of the lowest rank that has one, "on rank 3 ...", or nothing; the same on
// every rank. `names`: what the text calls the ranks; empty: by their numbers. Blocks and throws as
// store_allgather().
std::optional<std::string> first_unsupported_reason(KeyValueStore& store, const std::string& key, int rank,
                                                    int size, std::chrono::milliseconds timeout,
                                                    const std::string& purpose,
                                                    const std::string& unsupported_reason,
                                                    std::span<const int> names = {});

// Keeps rank 0, which may host the store, from exiting while other ranks still read there. A rank
// calls it after its last request to the store. Rank 0 waits until all other ranks have called it,
// until `timeout` has passed, or until the store or a peer fails. The other ranks add to a counter
// and return. Never throws. `key`: a new one, the same on all ranks.
void leave_in_turn(KeyValueStore& store, const std::string& key, int rank, int size,
                   std::chrono::milliseconds timeout) noexcept;

}  // namespace altorch
