// SPDX-License-Identifier: BSD-3-Clause
// Which route calls on CUDA tensors take in which world, and that each carries them right.
#include "gpu/gpu_routes.h"

#include <gtest/gtest.h>

#include <map>

#include "gpu/gpu_ranks.h"

namespace altorch {
namespace {

using staged::numbers;
using staged::operation_of;
using staged::slice;
using staged::sum;

constexpr std::int64_t kLl = 100, kLarge = 140'000;  // of float32
using Names = std::map<std::string, std::string>;    // of the routes, by operation

// One call of each kind, with blocks of so many elements; checks what comes of them.
Names call_each_kind(const GpuRank& me, std::int64_t count) {
  const int root = me.size - 1, next = (me.rank + 1) % me.size, before = (me.rank + me.size - 1) % me.size;
  const auto all_of = [&](unsigned seed) {
    std::vector<float> joined;
    for (int rank = 0; rank < me.size; ++rank) {
      const auto part = numbers(count, rank, seed);
      joined.insert(joined.end(), part.begin(), part.end());
    }
    return joined;
  };
  const std::int64_t total = count * me.size, own = count * me.rank;
  const auto elements = static_cast<std::size_t>(count),
             of_all = elements * static_cast<std::size_t>(me.size);
  Names names;
  const auto call = [&](OpKind kind, const void* input, void* output) {
    names[name_of(kind)] = me.call(operation_of(kind, input, output, count, root));
  };
  auto reduced = numbers(count, me.rank), at_root = numbers(count, me.rank, 1),
       broadcast = numbers(count, me.rank, 2);
  const auto mine = numbers(count, me.rank, 3), parts = numbers(total, me.rank, 4);
  std::vector<float> gathered(of_all), scattered(elements), exchanged(of_all), collected(of_all),
      given(elements);
  call(OpKind::kAllReduce, reduced.data(), reduced.data());
  call(OpKind::kReduce, at_root.data(), at_root.data());
  call(OpKind::kBroadcast, nullptr, broadcast.data());
  call(OpKind::kAllGather, mine.data(), gathered.data());
  call(OpKind::kReduceScatter, parts.data(), scattered.data());
  call(OpKind::kAllToAll, parts.data(), exchanged.data());
  call(OpKind::kGather, mine.data(), me.rank == root ? collected.data() : nullptr);
  call(OpKind::kScatter, me.rank == root ? parts.data() : nullptr, given.data());
  call(OpKind::kBarrier, nullptr, nullptr);
  std::vector<float> taken(elements);
  if (me.size > 1) {
    // Even ranks send first: on one stream a message waits for its peer.
    const Operation out = operation_of(OpKind::kSend, mine.data(), nullptr, count, next);
    const Operation in = operation_of(OpKind::kReceive, nullptr, taken.data(), count, before);
    const bool first = me.rank % 2 == 0;
    names["send"] = me.call(first ? out : in);
    names["recv"] = me.call(first ? in : out);
  }
  me.finish();
  EXPECT_EQ(reduced, sum(count, me.size));
  EXPECT_EQ(at_root, me.rank == root ? sum(count, me.size, 1) : numbers(count, me.rank, 1));
  EXPECT_EQ(broadcast, numbers(count, root, 2));
  EXPECT_EQ(gathered, all_of(3));
  EXPECT_EQ(scattered, slice(sum(total, me.size, 4), own, count));
  for (int rank = 0; rank < me.size; ++rank)
    EXPECT_EQ(slice(exchanged, rank * count, count), slice(numbers(total, rank, 4), own, count)) << rank;
  if (me.rank == root) {
    EXPECT_EQ(collected, all_of(3));
  }
  EXPECT_EQ(given, slice(numbers(total, root, 4), own, count));
  if (me.size > 1) {
    EXPECT_EQ(taken, numbers(count, before, 3));
  }
  return names;
}

// Where reductions, broadcasts and gathers go, and the others.
Names all_by(const std::string& vectors, const std::string& messages, const std::string& all_to_all) {
  Names names;
  for (const char* name : {"all_reduce", "reduce", "broadcast", "all_gather", "reduce_scatter"})
    names[name] = vectors;
  for (const char* name : {"gather", "scatter", "barrier", "send", "recv"}) names[name] = messages;
  names["all_to_all"] = all_to_all;
  return names;
}
Names all_by(const std::string& name) { return all_by(name, name, name); }

void expect_routes(const std::vector<Surroundings>& places, const Names& small, const Names& large,
                   bool uses_nccl) {
  GpuWorld world(places);
  world.run([&](GpuRank& me) {
    EXPECT_EQ(call_each_kind(me, kLl), small);
    EXPECT_EQ(call_each_kind(me, kLarge), large);
    EXPECT_EQ(me.routes.nccl_communicator() != nullptr, uses_nccl);
    EXPECT_FALSE(me.routes.failure());
  });
  EXPECT_EQ(world.nccl().calls("ncclCommInitRankConfig"), uses_nccl ? world.size() : 0);
}

TEST(GpuRoutes, LargeCallsGoByNcclAndSmallOnesBesideIt) {
  for (const int size : {2, 4})
    expect_routes(own_gpus(size), all_by("host_staged", "nccl", "host_staged"), all_by("nccl"), true);
}

TEST(GpuRoutes, GpusThatMapEachOthersMemoryTakeSmallCallsBesideNccl) {
  for (const int size : {2, 4}) {
    auto places = own_gpus(size);
    for (Surroundings& place : places) place.cannot_export = "";
    const Names beside = all_by("peer", "nccl", "peer");
    expect_routes(places, beside, size == 2 ? beside : all_by("nccl"), true);
  }
}

TEST(GpuRoutes, AGpuThatServesSeveralTakesAllByPeer) {
  for (const int size : {2, 3}) {
    auto places = shared_gpu(size);
    for (Surroundings& place : places) {
      place.cannot_export = "";
      place.mps = true;
    }
    expect_routes(places, all_by("peer"), all_by("peer"), false);
  }
}

TEST(GpuRoutes, ARankAloneNeedsNoPeer) {
  GpuWorld world(own_gpus(1));
  world.run([&](GpuRank& me) {
    Names want = all_by("alone");
    want.erase("send");
    want.erase("recv");
    EXPECT_EQ(call_each_kind(me, kLl), want);
    EXPECT_EQ(call_each_kind(me, kLarge), want);
  });
}

TEST(GpuRoutes, OnASharedGpuTheHostTakesSmallCalls) {
  expect_routes(shared_gpu(2), all_by("host_relay", "host_staged", "host_staged"), all_by("host_staged"),
                false);
  auto some = own_gpus(4);
  some[3].gpu = some[1].gpu;
  expect_routes(some, all_by("host_relay", "host_staged", "host_staged"), all_by("host_staged"), false);
}

TEST(GpuRoutes, BetweenNodesThereIsNcclOrTheHost) {
  expect_routes(two_nodes(3), all_by("nccl"), all_by("nccl"), true);
  auto without = two_nodes(4);
  without[2].has_nccl = false;
  Names beside = all_by("hierarchical", "host_relay", "host_relay");
  beside["reduce"] = "host_relay";
  expect_routes(without, beside, beside, false);
}

TEST(GpuRoutes, WithoutNcclThereIsTheHost) {
  auto without = own_gpus(2);
  without[1].has_nccl = false;
  expect_routes(without, all_by("host_staged"), all_by("host_staged"), false);
  without[0].kernel_unsupported_reason = "there is no NVRTC";
  expect_routes(without, all_by("host_relay"), all_by("host_relay"), false);
}

TEST(GpuRoutes, OnlyNcclServesAGpuThatCannotWaitForMemory) {
  auto without = own_gpus(2);
  without[1].unsupported_reason = "GPU 0 cannot wait for memory in a stream";
  expect_routes(without, all_by("nccl"), all_by("nccl"), true);
}

TEST(GpuRoutes, FollowTheSetting) {
  struct Case {
    const char* setting;
    std::vector<Surroundings> places;
    Names small, large;
    bool uses_nccl;
  };
  Names some_by_relay = all_by("host_staged", "nccl", "host_staged");
  some_by_relay["broadcast"] = "host_relay";
  Names others_by_nccl = all_by("nccl");
  others_by_nccl["broadcast"] = "host_relay";
  for (const Case& each : {
           Case{"cuda=nccl", own_gpus(2), all_by("nccl"), all_by("nccl"), true},
           Case{"cuda=host_staged", own_gpus(3), all_by("host_staged"), all_by("host_staged"), false},
           Case{"cuda=host_relay", own_gpus(3), all_by("host_relay"), all_by("host_relay"), false},
           // Who asks for staging through the host means either way.
           Case{"cuda=host_staged", two_nodes(2), all_by("host_relay"), all_by("host_relay"), false},
           Case{"broadcast=host_relay", own_gpus(2), some_by_relay, others_by_nccl, true},
       }) {
    const RouteSetting setting(each.setting);
    expect_routes(each.places, each.small, each.large, each.uses_nccl);
  }
  const RouteSetting setting("cuda=nccl");
  GpuWorld world(shared_gpu(2));
  for (const std::string& error : world.try_to([](GpuRank& me) { call_each_kind(me, kLl); }))
    EXPECT_EQ(
        error,
        "unsupported: no route can carry it between GPUs (nccl: ranks 0 and 1 share one GPU, which NCCL "
        "refuses); ALTORCH_ROUTE allows no other");
}

TEST(GpuRoutes, TypesThatNcclLacksGoThroughTheHost) {
  GpuWorld world(own_gpus(2));
  world.run([&](GpuRank& me) {
    std::vector<std::int16_t> x(kLarge, static_cast<std::int16_t>(me.rank + 1));
    Operation call = operation_of(OpKind::kAllReduce, x.data(), x.data(), kLarge);
    call.dtype = DType::kInt16;
    EXPECT_EQ(me.call(call), "host_staged");
    call.kind = OpKind::kBroadcast;  // moved as bytes
    call.root = 1;
    EXPECT_EQ(me.call(call), "nccl");
    me.finish();
    EXPECT_EQ(x, std::vector<std::int16_t>(kLarge, 3));
  });
}

// Between ranks 0 and 1 small blocks, otherwise large ones: rank 2 has no small pair.
void each_pair_goes_its_own_way(const std::vector<Surroundings>& places, const std::string& small) {
  GpuWorld world(places);
  world.run([&](GpuRank& me) {
    const auto count = [](int from, int to) -> std::int64_t {
      return from != 2 && to != 2 ? 10 * from + to + 1 : 100'000 + from;
    };
    std::vector<std::int64_t> sent, taken;
    std::vector<float> input, want;
    for (int peer = 0; peer < 3; ++peer) {
      sent.push_back(count(me.rank, peer));
      taken.push_back(count(peer, me.rank));
      const auto out = numbers(sent.back(), me.rank, static_cast<unsigned>(peer)),
                 in = numbers(taken.back(), peer, static_cast<unsigned>(me.rank));
      input.insert(input.end(), out.begin(), out.end());
      want.insert(want.end(), in.begin(), in.end());
    }
    std::vector<float> output(want.size(), -1);
    Operation call = operation_of(OpKind::kAllToAll, input.data(), output.data(), 0);
    call.input_counts = sent;
    call.output_counts = taken;
    EXPECT_EQ(me.call(call), me.rank == 2 ? "nccl" : small);
    me.finish();
    EXPECT_EQ(output, want) << me.rank;
  });
  // 0-2, 1-2 in both directions, and rank 2 with itself.
  EXPECT_EQ(world.nccl().calls("ncclSend"), 5);
}

TEST(GpuRoutes, EachPairOfAnAllToAllGoesItsOwnWay) {
  auto places = own_gpus(3);
  each_pair_goes_its_own_way(places, "host_staged");
  for (Surroundings& place : places) place.cannot_export = "";
  each_pair_goes_its_own_way(places, "peer");
}

TEST(GpuRoutes, GraphsHoldNcclAndWhatCountsOnTheDevice) {
  GpuWorld world(own_gpus(2));
  world.run([&](GpuRank& me) {
    std::vector<float> x(kLl, 1.0f), y(kLarge, 1.0f);
    const Operation small = operation_of(OpKind::kAllReduce, x.data(), x.data(), kLl);
    const Operation large = operation_of(OpKind::kAllReduce, y.data(), y.data(), kLarge);
    // A graph cannot wait until the ranks have met: what it takes is there from a call before, NCCL
    // from the first.
    EXPECT_STREQ(me.routes.choose({&small, 1}, /*capturing=*/true).name(), "nccl");
    ASSERT_NE(me.routes.nccl_communicator(), nullptr);
    EXPECT_EQ(me.call(small), "host_staged");
    me.finish();
    for (const auto& [operation, name] : {std::pair(small, "host_staged"), std::pair(large, "nccl")}) {
      GpuRoute& route = me.routes.choose({&operation, 1}, /*capturing=*/true);
      EXPECT_STREQ(route.name(), name);
      me.routes.enqueue(route, {&operation, 1}, me.stream);
    }
    me.finish();
    EXPECT_EQ(x, std::vector<float>(kLl, 4.0f));
    EXPECT_EQ(y, std::vector<float>(kLarge, 2.0f));
  });
  GpuWorld without(shared_gpu(2));
  const auto errors = without.try_to([&](GpuRank& me) {
    std::vector<float> x(kLl);
    const Operation small = operation_of(OpKind::kAllReduce, x.data(), x.data(), kLl);
    me.routes.choose({&small, 1}, /*capturing=*/true);
  });
  for (const std::string& error : errors)
    EXPECT_NE(error.find("host_staged: it cannot be captured into a CUDA graph: ranks share a GPU"),
              std::string::npos)
        << error;
}

TEST(GpuRoutes, SeveralCallsGoTogether) {
  GpuWorld world(own_gpus(2));
  world.run([&](GpuRank& me) {
    std::vector<float> x(kLl, 1.0f), y(kLarge, 2.0f), sent(kLl, static_cast<float>(me.rank)), taken(kLl);
    const int peer = 1 - me.rank;
    std::vector<Operation> window = {
        operation_of(OpKind::kSend, sent.data(), nullptr, kLl, peer),
        operation_of(OpKind::kAllReduce, x.data(), x.data(), kLl),
        operation_of(OpKind::kAllReduce, y.data(), y.data(), kLarge),
        operation_of(OpKind::kReceive, nullptr, taken.data(), kLl, peer),
    };
    GpuRoute& route = me.routes.choose(window, /*capturing=*/false);
    EXPECT_STREQ(route.name(), "nccl");
    me.routes.enqueue(route, window, me.stream);
    me.finish();
    EXPECT_EQ(x, std::vector<float>(kLl, 2.0f));
    EXPECT_EQ(y, std::vector<float>(kLarge, 4.0f));
    EXPECT_EQ(taken, std::vector<float>(kLl, static_cast<float>(peer)));
  });
}

}  // namespace
}  // namespace altorch
