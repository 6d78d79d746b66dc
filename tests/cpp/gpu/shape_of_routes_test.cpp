// SPDX-License-Identifier: BSD-3-Clause
// Random collectives over every executor that the C++ tests have, held to the shape (base/shape.h).
// MPI's is held to it by the conformance suite of tests/python.
#include <gtest/gtest.h>

#include "base/shape_cases.h"
#include "gpu/gpu_ranks.h"
#include "transports/collectives_conformance.h"
#include "transports/shm/shm_ranks.h"

namespace altorch {
namespace {

constexpr int kSizes[] = {1, 2, 3, 5};
constexpr int kCases = 60;
constexpr std::int64_t kMost = 3000;

TEST(ShapeOfRoutes, MessagesFollowIt) {
  for (const int size : kSizes) {
    ThreadGroup groups(size, {.longest_delay = 2, .seed = static_cast<unsigned>(size)});
    EXPECT_EQ(groups.run([&](int rank, Communicator& group) {
      shapes::hold_to_the_shape(static_cast<unsigned>(size), kCases, rank, size, kMost, /*scans=*/true,
                                [&](Operation& call) {
                                  call.sequence = group.next_sequence();
                                  run(group, call);
                                });
    }),
              all_good(size));
  }
}

TEST(ShapeOfRoutes, SharedMemoryFollowsIt) {
  for (const int size : {2, 3, 5}) {
    for (const bool may_read : shm::ways_to_copy()) {
      const auto errors = shm::with_shared_memory(
          size, /*limit=*/1,
          [&](int rank, ShmCollectives& own) {
            shapes::hold_to_the_shape(7, kCases, rank, size, 20 * kMost, /*scans=*/true,
                                      [&](Operation& call) {
                                        conformance::run({own, rank, size}, call);
                                      });
          },
          shm::processes_of(size, may_read), {}, /*cores=*/size);
      EXPECT_EQ(errors, all_good(size)) << may_read;
    }
  }
}

// `route`: ALTORCH_ROUTE for CUDA tensors; empty: as chosen.
void hold_gpus(std::vector<Surroundings> places, const std::string& route, std::int64_t most,
               bool scans = false, int cases = kCases) {
  const int size = static_cast<int>(places.size());
  const RouteSetting setting(route.empty() ? "" : "cuda=" + route);
  GpuWorld world(std::move(places));
  world.run([&](GpuRank& me) {
    shapes::hold_to_the_shape(11, cases, me.rank, size, most, scans, [&](Operation& call) {
      call.device = 0;
      me.call(call);
      me.finish();
    });
  });
}

std::vector<Surroundings> mapped(std::vector<Surroundings> places) {
  for (Surroundings& place : places) place.cannot_export = "";
  return places;
}

TEST(ShapeOfRoutes, NcclFollowsIt) { hold_gpus(own_gpus(3), "nccl", kMost); }
TEST(ShapeOfRoutes, PeerFollowsIt) {
  hold_gpus(mapped(own_gpus(2)), "peer", 4 * kMost);
  hold_gpus(mapped(own_gpus(3)), "peer", kMost);
  for (const int size : {5, 6, 7, 8}) hold_gpus(mapped(own_gpus(size)), "peer", kMost);
}
TEST(ShapeOfRoutes, HostStagedFollowsIt) { hold_gpus(own_gpus(3), "host_staged", 8 * kMost); }
TEST(ShapeOfRoutes, HostRelayFollowsIt) { hold_gpus(two_nodes(3), "host_relay", kMost, /*scans=*/true); }
// What it does not carry goes by nccl or host_relay.
TEST(ShapeOfRoutes, HierarchicalFollowsIt) {
  for (const std::vector<int>& nodes :
       std::vector<std::vector<int>>{{0, 0, 1, 1}, {0, 1, 1, 0}, {0, 1, 1}, {0, 1, 0, 0, 1, 0}}) {
    for (const bool has_nccl : {true, false})
      hold_gpus(on_nodes(nodes, has_nccl), "hierarchical", 8 * kMost, /*scans=*/false, kCases / 4);
  }
}
TEST(ShapeOfRoutes, AloneFollowsIt) { hold_gpus(own_gpus(1), "", kMost, /*scans=*/true); }
// Of these routes, host_relay alone has scans.
TEST(ShapeOfRoutes, WhatIsChosenFollowsIt) {
  hold_gpus(own_gpus(3), "", kMost, /*scans=*/true);
  hold_gpus(mapped(own_gpus(3)), "", kMost, /*scans=*/true);
}

}  // namespace
}  // namespace altorch
