// SPDX-License-Identifier: BSD-3-Clause
// What opens a route for CUDA tensors (GpuRouteRow::open), and what comes of it.
#pragma once

#include <algorithm>
#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "gpu/gpu_route.h"
#include "gpu/gpu_route_options.h"
#include "rendezvous/store_allgather.h"
#include "runtime/communicator.h"
#include "select/gpu_route.h"
#include "select/rules.h"

namespace altorch {

// What a route is opened with, by some or all ranks of a group together.
struct RouteOpening {
  Communicator& communicator;  // of the whole group
  std::vector<int> ranks;      // those that open it, ascending
  KeyValueStore& store;        // keys of these ranks; checks the group's ranks while this rank waits
  std::string prefix;          // of these keys in the group's store
  const Operation& first;
  int device;
  std::chrono::milliseconds timeout;
  const World& world;  // of these ranks
  const Rules& rules;
  GpuRouteOptions& options;
  bool has_kernels;

  // Of this rank among them; of how many.
  int rank() const { return static_cast<int>(std::ranges::find(ranks, communicator.rank()) - ranks.begin()); }
  int size() const { return static_cast<int>(ranks.size()); }
  // altorch::first_unsupported_reason() among them; it names ranks of the group.
  std::optional<std::string> first_unsupported_reason(const std::string& key, const std::string& purpose,
                                                      const std::string& own) const {
    return altorch::first_unsupported_reason(store, key, rank(), size(), timeout, purpose, own, ranks);
  }
};

struct OpenedRoute {
  std::unique_ptr<GpuRoute> route = nullptr;  // null: there can be none, alike on every rank
  std::string unsupported_reason;
};

}  // namespace altorch
