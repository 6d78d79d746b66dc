// SPDX-License-Identifier: BSD-3-Clause
// Ranks that share memory and are threads.
#pragma once

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <vector>

#include "rendezvous/shared_memory.h"
#include "support/map_store.h"
#include "support/on_threads.h"
#include "transports/shm/collectives.h"

namespace altorch::shm {

// At the same address for all ranks: ThreadSanitizer then sees what each does to it.
inline std::shared_ptr<std::byte> plain_memory(std::size_t bytes) {
  bytes = (bytes + 4095) / 4096 * 4096;
  std::shared_ptr<std::byte> memory(static_cast<std::byte*>(std::aligned_alloc(4096, bytes)),
                                    [](std::byte* each) { std::free(each); });
  std::memset(memory.get(), 0, bytes);
  return memory;
}

// `body(rank, collectives)` on a thread per rank; what each threw. The rest is as ShmCollectives
// takes it.
template <typename Body>
std::vector<std::string> with_shared_memory(int size, std::size_t limit, Body body,
                                            const std::vector<Process>& processes = {},
                                            const std::vector<int>& ranks_of_group = {},
                                            std::optional<int> cores = {}) {
  MapStore store;
  const std::size_t area = Segment::area_bytes(size, limit);
  return on_threads(size, [&](int rank) {
    auto memory =
        share_memory(store, "test", rank, size, Segment::bytes(size, area), std::chrono::seconds(30));
    ShmCollectives own(Segment(std::move(memory), rank, size, area, cores), processes, ranks_of_group);
    body(rank, own);
  });
}

// Whether ranks may read each other's memory: both, where that is possible here. An emulator may
// not know how.
inline const std::vector<bool>& ways_to_copy() {
  static const std::vector<bool> ways = [] {
    const auto why = Process::own().unsupported_reason();
    if (why) std::printf("  skipped in part: %s\n", why->c_str());
    return why ? std::vector{false} : std::vector{false, true};
  }();
  return ways;
}

// Ranks that may read each other's memory, or not.
inline std::vector<Process> processes_of(int size, bool may_read) {
  return std::vector<Process>(may_read ? static_cast<std::size_t>(size) : 0, Process::own());
}

}  // namespace altorch::shm
