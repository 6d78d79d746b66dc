// Ranks that share memory and are threads.
#pragma once

#include <vector>

#include "support/map_store.h"
#include "support/on_threads.h"
#include "transports/shm/collectives.h"
#include "transports/shm/shared_memory.h"

namespace altorch::shm {

// `body(rank, collectives)` on a thread per rank; what each threw.
template <typename Body>
std::vector<std::string> with_shared_memory(int size, std::size_t limit, Body body) {
  MapStore store;
  const std::size_t area = Segment::area_bytes(size, limit);
  return on_threads(size, [&](int rank) {
    auto memory =
        share_memory(store, "test", rank, size, Segment::bytes(size, area), std::chrono::seconds(30));
    ShmCollectives own(Segment(std::move(memory), rank, size, area));
    body(rank, own);
  });
}

}  // namespace altorch::shm
