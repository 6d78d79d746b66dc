// Ranks that share memory and are threads.
#pragma once

#include <vector>

#include "support/map_store.h"
#include "support/on_threads.h"
#include "transports/shm/collectives.h"
#include "transports/shm/shared_memory.h"

namespace altorch::shm {

// `body(rank, collectives)` on a thread per rank; what each threw. The rest is as ShmCollectives takes it.
template <typename Body>
std::vector<std::string> with_shared_memory(int size, std::size_t limit, Body body,
                                            const std::vector<Process>& processes = {},
                                            const std::vector<int>& ranks_of_group = {}) {
  MapStore store;
  const std::size_t area = Segment::area_bytes(size, limit);
  return on_threads(size, [&](int rank) {
    auto memory =
        share_memory(store, "test", rank, size, Segment::bytes(size, area), std::chrono::seconds(30));
    ShmCollectives own(Segment(std::move(memory), rank, size, area), processes, ranks_of_group);
    body(rank, own);
  });
}

// Ranks that may read each other's memory, or not.
inline std::vector<Process> processes_of(int size, bool may_read) {
  return std::vector<Process>(may_read ? static_cast<std::size_t>(size) : 0, Process::own());
}

}  // namespace altorch::shm
