// SPDX-License-Identifier: BSD-3-Clause
// Memory that the ranks of one node share: anonymous (a memfd), handed by the first rank to the
// others over a socket to processes of the same user. It has no name in /dev/shm, so it is bound by
// no size of that and leaves nothing behind, however the job ends.
#pragma once

#include <chrono>
#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "platform/descriptor.h"
#include "rendezvous/key_value_store.h"

namespace altorch {

// Ranks that give the same text can share a segment.
std::string shared_memory_node();
// Why this process can make none, as a clause, or nothing.
std::optional<std::string> shared_memory_unsupported_reason();

// Collective over ranks of one node: `size` ranks map the same `bytes`, zero at first. `key` is new
// for every segment. Blocks. Throws Error(kTransport, kTimeout), and what store.check_peers()
// throws. The memory is mapped as long as the pointer lives.
std::shared_ptr<std::byte> share_memory(KeyValueStore& store, const std::string& key, int rank, int size,
                                        std::size_t bytes, std::chrono::milliseconds timeout);

// Collective over ranks of one node: every rank gives the others a descriptor of its own, and gets
// theirs, by rank; the entry at `rank` is empty, and `own` stays the caller's. `key` is new for
// every exchange. Blocks, and throws as share_memory().
std::vector<Descriptor> exchange_descriptors(KeyValueStore& store, const std::string& key, int rank, int size,
                                             const Descriptor& own, std::chrono::milliseconds timeout);

}  // namespace altorch
