// SPDX-License-Identifier: BSD-3-Clause
// What opens a route for CUDA tensors (GpuRouteRow::open), and what comes of it.
#pragma once

#include <chrono>
#include <memory>
#include <string>

#include "gpu/gpu_route.h"
#include "gpu/gpu_route_options.h"
#include "rendezvous/key_value_store.h"
#include "runtime/communicator.h"
#include "select/gpu_route.h"
#include "select/rules.h"

namespace altorch {

// What a route is opened with, by all ranks of the group together.
struct RouteOpening {
  Communicator& communicator;
  KeyValueStore& store;  // keys of the group; checks its ranks while this rank waits
  const Operation& first;
  int device;
  std::chrono::milliseconds timeout;
  const World& world;
  const Rules& rules;
  GpuRouteOptions& options;
  bool has_kernels;
};

struct OpenedRoute {
  std::unique_ptr<GpuRoute> route;  // null: there can be none, alike on every rank
  std::string unsupported_reason;
};

}  // namespace altorch
