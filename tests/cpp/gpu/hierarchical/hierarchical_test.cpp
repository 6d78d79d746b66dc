// SPDX-License-Identifier: BSD-3-Clause
// Groups of GPUs on several nodes: when they take this route, and what comes of their calls.
// tests/cpp/gpu/shape_of_routes_test.cpp holds it to the shape of random calls.
#include "gpu/hierarchical/hierarchical.h"

#include <algorithm>
#include <cmath>

#include "gpu/gpu_ranks.h"
#include "support/says.h"
#include "support/slow_memory.h"

namespace altorch {
namespace {

using namespace std::chrono_literals;  // NOLINT
using staged::numbers;
using staged::operation_of;
using staged::sum;

constexpr std::int64_t kSmall = 100, kLarge = 140'000;
// Of calls that hang: kernels of the fake device look seldom whether they are to give up.
constexpr std::int64_t kFewest = 2;
const std::vector<int> kTwoAndTwo = {0, 0, 1, 1}, kTwoAndOne = {0, 1, 0};

Operation all_reduce_of(std::vector<float>& x) {
  return operation_of(OpKind::kAllReduce, x.data(), x.data(), static_cast<std::int64_t>(x.size()));
}

World world_of(const std::vector<std::string>& nodes) {
  std::vector<GpuPeerInfo> peers(nodes.size());
  for (std::size_t rank = 0; rank < peers.size(); ++rank) {
    peers[rank].gpu = std::to_string(rank);
    peers[rank].node = nodes[rank];
  }
  return World::of(peers);
}

// The name of the route of an all_reduce that is right.
std::string route_of(GpuRank& me, std::int64_t count) {
  auto x = numbers(count, me.rank);
  const std::string name = me.call(all_reduce_of(x));
  me.finish();
  EXPECT_EQ(x, sum(count, me.size));
  return name;
}

void expect_route(const std::vector<Surroundings>& places, const std::string& name) {
  GpuWorld world(places);
  world.run([&](GpuRank& me) {
    for (const std::int64_t count : {kSmall, kLarge}) EXPECT_EQ(route_of(me, count), name);
  });
}

TEST(Hierarchical, ServesWhereNcclDoesNot) {
  for (const auto& nodes : {kTwoAndTwo, kTwoAndOne}) {
    expect_route(on_nodes(nodes, /*has_nccl=*/true), "nccl");
    expect_route(on_nodes(nodes, /*has_nccl=*/false), "hierarchical");
  }
  expect_route(on_nodes({0, 1, 2}, /*has_nccl=*/false), "host_relay");  // no two ranks on a node
}

TEST(Hierarchical, IsTakenWhereTheSettingNamesIt) {
  const RouteSetting setting("cuda=hierarchical");
  for (const bool has_nccl : {true, false}) {
    GpuWorld world(on_nodes(kTwoAndTwo, has_nccl));
    world.run([&](GpuRank& me) {
      EXPECT_EQ(route_of(me, kLarge), "hierarchical");
      // It has no plan for messages.
      std::vector<float> x(kSmall, static_cast<float>(me.rank));
      const int peer = me.rank ^ 1;
      const auto call = [&](OpKind kind) {
        return me.call(operation_of(kind, x.data(), x.data(), kSmall, peer));
      };
      EXPECT_EQ(call(me.rank < peer ? OpKind::kSend : OpKind::kReceive), has_nccl ? "nccl" : "host_relay");
      me.finish();
      EXPECT_EQ(x, std::vector<float>(kSmall, static_cast<float>(std::min(me.rank, peer))));
    });
    // One for each of two rails of two ranks, and one of all ranks for the messages.
    EXPECT_EQ(world.nccl().calls("ncclCommInitRankConfig"), has_nccl ? 2 * 2 + 4 : 0);
  }
}

// On a node whose GPUs cannot be mapped, host_staged carries the part of the node. Where memory
// cannot be shared either, another route carries all.
TEST(Hierarchical, EachNodeHasItsOwnWay) {
  auto places = on_nodes(kTwoAndTwo, /*has_nccl=*/false);
  for (const std::size_t rank : {std::size_t{2}, std::size_t{3}})
    places[rank].cannot_export = "its driver is too old";
  places[1].cannot_map = "GPU 1 cannot reach the memory of the other GPU";
  expect_route(places, "hierarchical");
  places[1].cannot_pin_shared = "GPU 0 cannot use shared memory";
  expect_route(places, "host_relay");
}

TEST(Hierarchical, AMeanIsScaledBeforeItIsSummed) {
  const RouteSetting setting("cuda=hierarchical");
  GpuWorld world(on_nodes({0, 0, 1, 1, 1}, /*has_nccl=*/true));
  world.run([&](GpuRank& me) {
    for (const std::int64_t count : {kSmall, kLarge}) {
      const auto input = numbers(count, me.rank);
      std::vector<float> output(input.size());
      Operation mean = operation_of(OpKind::kAllReduce, input.data(), output.data(), count);
      mean.op = ReduceOp::kAvg;
      EXPECT_EQ(me.call(mean), "hierarchical");
      me.finish();
      EXPECT_EQ(input, numbers(count, me.rank));
      const auto total = sum(count, me.size);
      for (std::size_t i = 0; i < total.size(); ++i)
        ASSERT_NEAR(output[i], total[i] / static_cast<float>(me.size), 1e-3f);
    }
  });
}

// From every root, also one that is beyond the rails; by leaders, and from 64 KiB on along rails.
TEST(Hierarchical, BroadcastsFromEveryRoot) {
  const RouteSetting setting("cuda=hierarchical");
  constexpr std::int64_t kRails = (64 << 10) / 4;
  for (const auto& nodes : {kTwoAndTwo, std::vector<int>{0, 1, 0, 1, 0}}) {
    for (const bool has_nccl : {true, false}) {
      GpuWorld world(on_nodes(nodes, has_nccl));
      world.run([&](GpuRank& me) {
        for (const std::int64_t count : {kRails - 1, kRails + 5}) {
          for (int root = 0; root < me.size; ++root) {
            auto x = numbers(count, me.rank);
            EXPECT_EQ(me.call(operation_of(OpKind::kBroadcast, nullptr, x.data(), count, root)),
                      "hierarchical");
            me.finish();
            EXPECT_EQ(x, numbers(count, root));
          }
        }
      });
    }
  }
}

// Of each type and reduction that NCCL lacks, and that would be rounded twice.
TEST(Hierarchical, WhatItCannotCarryGoesAnotherWay) {
  const RouteSetting setting("cuda=hierarchical");
  struct Case {
    ReduceOp op;
    DType dtype;
    const char *by_nccl, *by_relay;  // the route, by what its rails are
  };
  const Case cases[] = {
      {ReduceOp::kSum, DType::kInt64, "hierarchical", "hierarchical"},
      {ReduceOp::kMax, DType::kBFloat16, "hierarchical", "hierarchical"},
      {ReduceOp::kAvg, DType::kFloat16, "hierarchical", "hierarchical"},
      {ReduceOp::kSum, DType::kInt16, "host_relay", "hierarchical"},
      {ReduceOp::kBand, DType::kInt32, "host_relay", "hierarchical"},
      {ReduceOp::kExactSum, DType::kFloat32, "host_relay", "host_relay"},
      {ReduceOp::kAvg, DType::kInt32, "nccl", "host_relay"},
  };
  for (const bool has_nccl : {true, false}) {
    GpuWorld world(on_nodes(kTwoAndTwo, has_nccl));
    world.run([&](GpuRank& me) {
      for (const Case& each : cases) {
        std::vector<double> zeros(kSmall);
        Operation operation = operation_of(OpKind::kAllReduce, zeros.data(), zeros.data(), kSmall);
        operation.op = each.op;
        operation.dtype = each.dtype;
        EXPECT_EQ(me.call(operation), has_nccl ? each.by_nccl : each.by_relay)
            << name_of(each.op) << " of " << name_of(each.dtype);
        me.finish();
      }
    });
  }
  const World uneven = world_of({"a", "a", "b"});
  Operation mean = operation_of(OpKind::kAllReduce, nullptr, nullptr, kSmall);
  EXPECT_EQ(HierarchicalRoute::unsupported_reason(mean, uneven), std::nullopt);
  mean.op = ReduceOp::kAvg;
  EXPECT_EQ(HierarchicalRoute::unsupported_reason(mean, uneven),
            "it scales on the nodes, and a rank is alone on one");
}

// What rank `from` sends to rank `to`.
std::vector<float> block_of(std::int64_t count, int from, int to) {
  std::vector<float> block(static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < block.size(); ++i)
    block[i] = static_cast<float>(100 * from + 10 * to) + static_cast<float>(i % 7);
  return block;
}

// The name of the route of an all_to_all that is right; empty `counts`: even blocks of `count`.
std::string route_of_blocks(GpuRank& me, std::int64_t count, std::vector<std::int64_t> counts = {}) {
  std::vector<float> input, want;
  for (int peer = 0; peer < me.size; ++peer) {
    const std::int64_t length = counts.empty() ? count : counts[static_cast<std::size_t>(peer)];
    std::ranges::copy(block_of(length, me.rank, peer), std::back_inserter(input));
    std::ranges::copy(block_of(length, peer, me.rank), std::back_inserter(want));
  }
  const auto before = input;
  std::vector<float> output(want.size());
  Operation call = operation_of(OpKind::kAllToAll, input.data(), output.data(), count);
  call.input_counts = call.output_counts = counts;
  const std::string name = me.call(call);
  me.finish();
  EXPECT_EQ(output, want);
  EXPECT_EQ(input, before);
  return name;
}

// Nodes whose ranks follow one another, in turns, and mixed up. The last call takes several parts.
TEST(Hierarchical, EvenBlocksGoAlongTheRails) {
  const RouteSetting setting("cuda=hierarchical");
  for (const auto& nodes :
       std::vector<std::vector<int>>{{0, 0, 1, 1}, {0, 1, 0, 1}, {0, 0, 0, 1, 1, 1}, {0, 1, 2, 1, 0, 2}}) {
    for (const bool has_nccl : {true, false}) {
      GpuWorld world(on_nodes(nodes, has_nccl));
      world.run([&](GpuRank& me) {
        for (const std::int64_t count : {std::int64_t{0}, std::int64_t{1}, kSmall, kLarge / 4})
          EXPECT_EQ(route_of_blocks(me, count), "hierarchical");
        if (nodes == kTwoAndTwo && !has_nccl && !kSlowMemory) {
          EXPECT_EQ(route_of_blocks(me, (9 << 20) / 4 + 3), "hierarchical");
        }
      });
      // No communicator of all ranks.
      const int rails = static_cast<int>(nodes.size());
      EXPECT_EQ(world.nccl().calls("ncclCommInitRankConfig"), has_nccl ? rails : 0);
    }
  }
}

// A rank does not know the other ranks' splits, so that it looks only at whether it gives some.
TEST(Hierarchical, BlocksThatNoRailCarriesGoAnotherWay) {
  const RouteSetting setting("cuda=hierarchical");
  for (const bool has_nccl : {true, false}) {
    const std::string another = has_nccl ? "nccl" : "host_relay";
    GpuWorld world(on_nodes(kTwoAndTwo, has_nccl));
    world.run([&](GpuRank& me) {
      std::vector<std::int64_t> counts;
      for (int peer = 0; peer < me.size; ++peer) counts.push_back(me.rank + peer);
      EXPECT_EQ(route_of_blocks(me, 0, counts), another);
      EXPECT_EQ(route_of_blocks(me, kSmall, std::vector<std::int64_t>(4, kSmall)), another);
    });
    GpuWorld uneven(on_nodes({0, 0, 0, 1, 1}, has_nccl));
    uneven.run([&](GpuRank& me) { EXPECT_EQ(route_of_blocks(me, kSmall), another); });
  }
  const World uneven = world_of({"a", "a", "b"});
  Operation blocks = operation_of(OpKind::kAllToAll, nullptr, nullptr, kSmall);
  EXPECT_EQ(HierarchicalRoute::unsupported_reason(blocks, world_of({"a", "b", "a", "b"})), std::nullopt);
  EXPECT_EQ(HierarchicalRoute::unsupported_reason(blocks, uneven), "some nodes have more ranks than others");
  const std::vector<std::int64_t> counts(3, kSmall);
  blocks.input_counts = blocks.output_counts = counts;
  EXPECT_EQ(HierarchicalRoute::unsupported_reason(blocks, uneven),
            "of blocks with splits a rank knows only its own");
}

// So ranks with splits still meet ranks without.
TEST(Hierarchical, BlocksNeedASettingThatNamesIt) {
  GpuWorld world(on_nodes(kTwoAndTwo, /*has_nccl=*/false));
  world.run([&](GpuRank& me) {
    EXPECT_EQ(route_of(me, kSmall), "hierarchical");
    EXPECT_EQ(route_of_blocks(me, kSmall), "host_relay");
    const std::vector<std::int64_t> counts(4, kSmall);
    EXPECT_EQ(route_of_blocks(me, kSmall, me.rank == 1 ? counts : std::vector<std::int64_t>()), "host_relay");
  });
}

// With the setting they take different routes, which the node is told.
TEST(Hierarchical, RanksOfANodeOfWhichOneGivesSplitsAreToldAtOnce) {
  const RouteSetting setting("cuda=hierarchical");
  GpuWorld world(on_nodes(kTwoAndTwo, /*has_nccl=*/true));
  std::atomic<int> called{0};
  const auto errors = world.try_to(
      [&](GpuRank& me) {
        EXPECT_EQ(route_of_blocks(me, kFewest), "hierarchical");
        const std::vector<std::int64_t> counts(4, kFewest);
        EXPECT_EQ(route_of_blocks(me, kFewest, counts), "nccl");
        std::vector<float> x(4 * kFewest), y(x.size());
        Operation call = operation_of(OpKind::kAllToAll, x.data(), y.data(), kFewest);
        if (me.rank == 1) {
          wait_until([&] { return called >= 3; });
          call.input_counts = call.output_counts = counts;
          EXPECT_THROW(me.call(call), Error);
        } else {
          me.call(call);
        }
        ++called;
        wait_until([&] { return called >= 4; });
        EXPECT_EQ(me.routes.failure().has_value(), me.rank < 2);
        ++called;
        wait_until([&] { return called >= 8; });
        me.routes.abort("aborted by the test");
        me.finish();
      },
      /*aborts=*/true);
  EXPECT_EQ(errors, all_good(4));
}

// Without MPS: kernels of NCCL would wait for each other.
TEST(Hierarchical, BetweenSharedGpusTheHostCarries) {
  const RouteSetting setting("cuda=hierarchical");
  auto places = on_nodes({0, 1, 0, 1}, /*has_nccl=*/true);
  for (std::size_t rank = 0; rank < places.size(); ++rank) places[rank].gpu = places[rank].node;
  GpuWorld world(places);
  world.run([&](GpuRank& me) { EXPECT_EQ(route_of(me, kLarge), "hierarchical"); });
  EXPECT_EQ(world.nccl().calls("ncclCommInitRankConfig"), 0);
}

TEST(Hierarchical, OnOneNodeTheSettingAsksForNothing) {
  auto places = on_nodes({0, 0}, /*has_nccl=*/false);
  expect_route(places, "peer");
  const RouteSetting setting("cuda=hierarchical");
  expect_route(places, "peer");
}

// More than the memory beside it holds at once; ranks of a node do not follow one another.
TEST(Hierarchical, LongBlocksGoInParts) {
  constexpr std::int64_t kBlock = (3 << 20) / 4 + 3;
  GpuWorld world(on_nodes(kTwoAndOne, /*has_nccl=*/false));
  world.run([&](GpuRank& me) {
    const auto mine = numbers(kBlock, me.rank), parts = numbers(3 * kBlock, me.rank, 1);
    std::vector<float> gathered(3 * kBlock), scattered(kBlock);
    EXPECT_EQ(me.call(operation_of(OpKind::kAllGather, mine.data(), gathered.data(), kBlock)),
              "hierarchical");
    EXPECT_EQ(me.call(operation_of(OpKind::kReduceScatter, parts.data(), scattered.data(), kBlock)),
              "hierarchical");
    me.finish();
    for (int rank = 0; rank < me.size; ++rank)
      EXPECT_EQ(staged::slice(gathered, rank * kBlock, kBlock), numbers(kBlock, rank)) << rank;
    EXPECT_EQ(scattered, staged::slice(sum(3 * kBlock, me.size, 1), me.rank * kBlock, kBlock));
  });
}

// Not by the host, nor by host_staged, whose flags differ from replay to replay.
TEST(Hierarchical, GoesIntoAGraphByPeerAndNccl) {
  const RouteSetting setting("all_reduce=hierarchical,all_to_all=hierarchical");
  auto without_nccl = on_nodes(kTwoAndTwo, false), without_peer = on_nodes(kTwoAndTwo, true);
  without_peer[1].cannot_map = "GPU 1 cannot reach the memory of the other GPU";  // found out late
  for (const auto& places : {on_nodes(kTwoAndTwo, true), without_nccl, without_peer}) {
    GpuWorld world(places);
    const auto errors = world.try_to([&](GpuRank& me) {
      auto x = numbers(kLarge, me.rank);
      const Operation call = all_reduce_of(x);
      EXPECT_EQ(route_of(me, kLarge), "hierarchical");
      // What stands in for it is opened before the graph is captured.
      EXPECT_EQ(me.call(operation_of(OpKind::kBroadcast, nullptr, x.data(), 1)),
                places[0].has_nccl ? "nccl" : "hierarchical");
      me.finish();
      std::ranges::copy(numbers(kLarge, me.rank), x.begin());
      GpuRoute& route = me.routes.choose({&call, 1}, /*capturing=*/true);
      EXPECT_STREQ(route.name(), places[1].cannot_map.empty() ? "hierarchical" : "nccl");
      me.routes.enqueue(route, {&call, 1}, me.stream);
      me.finish();
      EXPECT_EQ(x, sum(kLarge, me.size));
      const Operation blocks = operation_of(OpKind::kAllToAll, x.data(), x.data(), kSmall);
      EXPECT_STREQ(me.routes.choose({&blocks, 1}, /*capturing=*/true).name(), route.name());
    });
    for (const std::string& error : errors)
      EXPECT_EQ(error.substr(0, error.find(':')), places[0].has_nccl ? "" : "unsupported") << error;
  }
}

// Whether rails go by NCCL, and what is called.
constexpr std::pair<bool, OpKind> kWaysToHang[] = {{true, OpKind::kAllReduce},
                                                   {false, OpKind::kAllReduce},
                                                   {true, OpKind::kAllToAll},
                                                   {false, OpKind::kAllToAll}};

// An all_reduce, or an all_to_all between four ranks.
Operation hanging(OpKind kind, const std::vector<float>& x, std::vector<float>& y) {
  const auto count = static_cast<std::int64_t>(x.size());
  return operation_of(kind, x.data(), y.data(), kind == OpKind::kAllToAll ? count / 4 : count);
}

// Of an all_to_all, blocks that have come may stay. Each rank sends its number.
void expect_marked(OpKind kind, const std::vector<float>& y, const std::vector<int>& missing) {
  for (int rank = 0; rank < 4; ++rank) {
    const float value = y[static_cast<std::size_t>(rank)];
    const bool may_come = kind == OpKind::kAllToAll && std::ranges::find(missing, rank) == missing.end();
    EXPECT_TRUE(std::isnan(value) || (may_come && value == static_cast<float>(rank)))
        << name_of(kind) << ": " << value << " of rank " << rank;
  }
}

// The ranks of the other node do not call. What an aborted rank already has is marked, too.
TEST(Hierarchical, AnAbortMarksAllOfTheResult) {
  const RouteSetting setting("cuda=hierarchical");
  for (const auto& [has_nccl, kind] : kWaysToHang) {
    GpuWorld world(on_nodes(kTwoAndTwo, has_nccl));
    std::atomic<int> called{0}, over{0};
    const auto errors = world.try_to(
        [&](GpuRank& me) {
          EXPECT_EQ(route_of(me, kLarge), "hierarchical");
          if (me.rank < 2) {
            std::vector<float> x(4, static_cast<float>(me.rank)), y(4);
            me.call(hanging(kind, x, y));
            ++called;
            wait_until([&] { return called >= 2; });
            std::this_thread::sleep_for(20ms);
            EXPECT_EQ(me.routes.mark_results(), std::nullopt);
            me.routes.abort("aborted by the test");
            me.finish();
            expect_marked(kind, y, {2, 3});
            EXPECT_THROW(me.call(all_reduce_of(x)), Error);
          }
          ++over;
          wait_until([&] { return over == me.size; });
        },
        /*aborts=*/true);
    EXPECT_EQ(errors, all_good(4));
  }
}

// Rank 1 aborts first, so the kernel in which rank 0 waits for it ends. Rank 0 must not take what
// that leaves for data, and send it to the other node.
TEST(Hierarchical, WhatIsAbortedDoesNotLeaveItsNode) {
  const RouteSetting setting("cuda=hierarchical");
  for (const auto& [has_nccl, kind] : kWaysToHang) {
    GpuWorld world(on_nodes(kTwoAndTwo, has_nccl));
    std::atomic<int> called{0};
    const auto errors = world.try_to(
        [&](GpuRank& me) {
          EXPECT_EQ(route_of(me, kLarge), "hierarchical");
          std::vector<float> x(4, static_cast<float>(me.rank)), y(4);
          Flag done;
          if (me.rank != 1) me.call(hanging(kind, x, y));
          me.device.raise(done, 1, me.stream);
          ++called;
          wait_until([&] { return called >= 4; });
          if (me.rank == 1) me.routes.abort("aborted by the test");
          std::this_thread::sleep_for(200ms);
          EXPECT_EQ(done.reached(1), me.rank == 1);
          ++called;
          wait_until([&] { return called >= 8; });
          me.routes.abort("aborted by the test");
          me.finish();
          if (me.rank == 0) expect_marked(kind, y, {1});
        },
        /*aborts=*/true);
    EXPECT_EQ(errors, all_good(4));
  }
}

// Rank 1, which is on no rail of this call, gets what rank 0 has from its rail: poison, and not
// without knowing.
TEST(Hierarchical, WhatFailsAlongARailIsKnownOnTheNode) {
  const RouteSetting setting("cuda=hierarchical");
  GpuWorld world(on_nodes(kTwoAndTwo, /*has_nccl=*/false));
  std::atomic<int> over{0};
  const auto errors = world.try_to(
      [&](GpuRank& me) {
        EXPECT_EQ(route_of(me, kLarge), "hierarchical");
        if (me.rank < 2) {
          std::vector<float> x(kFewest, 1.0f);
          Operation late = all_reduce_of(x);
          late.timeout = 300ms;  // the ranks of the other node do not call
          me.call(late);
          me.finish();
          EXPECT_TRUE(me.routes.failure());
          for (const float value : x) EXPECT_TRUE(std::isnan(value));
        }
        ++over;
        wait_until([&] { return over == me.size; });
      },
      /*aborts=*/true);
  EXPECT_EQ(errors, all_good(4));
}

// Rank 3 comes last. That the other node is told is the watchdog's.
TEST(Hierarchical, RanksOfANodeThatDifferAreToldAtOnce) {
  const RouteSetting setting("cuda=hierarchical");
  GpuWorld world(on_nodes(kTwoAndTwo, /*has_nccl=*/true));
  std::atomic<int> called{0};
  const auto errors = world.try_to(
      [&](GpuRank& me) {
        EXPECT_EQ(route_of(me, kLarge), "hierarchical");
        std::vector<float> x(me.rank == 3 ? kFewest + 1 : kFewest);
        if (me.rank == 3) {
          wait_until([&] { return called >= 3; });
          EXPECT_THROW(me.call(all_reduce_of(x)), Error);
        } else {
          me.call(all_reduce_of(x));
        }
        ++called;
        wait_until([&] { return called >= 4; });
        EXPECT_EQ(me.routes.failure().has_value(), me.rank >= 2);
        ++called;
        wait_until([&] { return called >= 8; });  // ranks of a node share their aborts
        me.routes.abort("aborted by the test");
        me.finish();
      },
      /*aborts=*/true);
  EXPECT_EQ(errors, all_good(4));
}

// Rank 2 finds out that it cannot serve when the route is opened.
TEST(Hierarchical, ALackOfMemoryOfOneRankIsKnownToAll) {
  auto places = on_nodes(kTwoAndTwo, /*has_nccl=*/false);
  places[2].cannot_map = places[2].cannot_pin_shared = "GPU 2 cannot reach other memory";
  const RouteSetting setting("all_reduce=hierarchical");
  GpuWorld world(places);
  world.run([&](GpuRank& me) { EXPECT_EQ(route_of(me, kSmall), "host_relay"); });
}

}  // namespace
}  // namespace altorch
