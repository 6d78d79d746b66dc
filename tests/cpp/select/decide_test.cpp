// SPDX-License-Identifier: BSD-3-Clause
#include "select/decide.h"

#include <gtest/gtest.h>

#include <vector>

#include "select/gpu_route.h"
#include "support/route_setting.h"
#include "transports/channel.h"

namespace altorch {
namespace {

std::vector<GpuPeerInfo> peers(int ranks) {
  std::vector<GpuPeerInfo> made(static_cast<std::size_t>(ranks));
  for (int rank = 0; rank < ranks; ++rank) {
    made[static_cast<std::size_t>(rank)].gpu = "gpu " + std::to_string(rank);
    made[static_cast<std::size_t>(rank)].node = "node";
    made[static_cast<std::size_t>(rank)].unsupported_reasons.resize(gpu_route_rows().size());
  }
  return made;
}
// The same, each of them linked to every other by NVLink.
std::vector<GpuPeerInfo> linked(int ranks) {
  auto made = peers(ranks);
  for (GpuPeerInfo& peer : made) {
    for (const GpuPeerInfo& other : made)
      if (&other != &peer) peer.links.push_back(other.gpu);
  }
  return made;
}

// GPUs that cannot map each other's memory.
std::vector<GpuPeerInfo> strangers(int ranks) {
  auto made = peers(ranks);
  for (GpuPeerInfo& peer : made)
    peer.unsupported_reasons[index_of(gpu_rows::peer)] = "its memory cannot be mapped";
  return made;
}

Operation call(OpKind kind, std::int64_t bytes, DType dtype = DType::kFloat32) {
  Operation operation;
  operation.kind = kind;
  operation.dtype = dtype;
  operation.count = bytes / static_cast<std::int64_t>(size_of(dtype));
  operation.device = 0;
  return operation;
}

// As execution and explain do it.
std::string taken(const Operation& operation, const World& world, const std::string& asked = {},
                  bool capturing = false) {
  const RouteSetting setting(asked.empty() ? "" : "cuda=" + asked);
  const Rules rules;
  const auto route = decide({&operation, 1}, world, rules, [&](const Route& each) {
    return !unsupported_reason(each, {&operation, 1}, world, capturing ? &rules : nullptr);
  });
  return route ? std::string(route->name) + (route->in_pairs ? " in pairs" : "") : "none";
}

const std::size_t kNccl = index_of(gpu_rows::nccl), kHostStaged = index_of(gpu_rows::host_staged),
                  kHostRelay = index_of(gpu_rows::host_relay), kPeer = index_of(gpu_rows::peer);
constexpr std::int64_t kLl = 1024, kLarge = 64 << 20;

TEST(WorldTest, TellsWhoSharesWhatAndWhoLacksWhat) {
  EXPECT_TRUE(World::of(peers(4)).own_gpus());
  EXPECT_TRUE(World::of(peers(4)).one_node());
  const World four = World::of(peers(4));
  for (const GpuRouteRow* row : gpu_route_rows())
    EXPECT_EQ(four.missing[index_of(*row)].has_value(),
              row == &gpu_rows::alone || row == &gpu_rows::hierarchical);

  auto shared = peers(4);
  shared[3].gpu = shared[1].gpu;
  EXPECT_FALSE(World::of(shared).own_gpus());
  EXPECT_EQ(World::of(shared).missing[kNccl], "ranks 1 and 3 share one GPU, which NCCL refuses");
  EXPECT_FALSE(World::of(shared).missing[kHostStaged].has_value());

  auto far = peers(3);
  far[2].node = "another";
  EXPECT_FALSE(World::of(far).one_node());
  EXPECT_EQ(World::of(far).missing[kHostStaged], "ranks 0 and 2 share no memory");

  auto poor = peers(2);
  poor[1].unsupported_reasons[kNccl] = "there is no NCCL";
  EXPECT_EQ(World::of(poor).missing[kNccl], "on rank 1 there is no NCCL");
}

TEST(WorldTest, IsLinkedWhereEveryGpuIsToEveryOther) {
  EXPECT_FALSE(World::of(peers(2)).linked);
  EXPECT_FALSE(World::of(linked(1)).linked);
  EXPECT_TRUE(World::of(linked(2)).linked);
  EXPECT_TRUE(World::of(linked(8)).linked);
  auto blind = linked(4);
  blind[2].links.pop_back();  // CUDA_VISIBLE_DEVICES hides one
  EXPECT_FALSE(World::of(blind).linked);
  auto shared = linked(4);
  shared[3].gpu = shared[2].gpu;
  EXPECT_FALSE(World::of(shared).linked);
  auto told = linked(3)[0];
  EXPECT_EQ(GpuPeerInfo::from(told.text()).links, told.links);
  EXPECT_TRUE(GpuPeerInfo::from(peers(1)[0].text()).links.empty());
  // Larger reductions are left to NCCL later then.
  const Operation operation = call(OpKind::kAllReduce, 16 << 20);
  EXPECT_EQ(taken(operation, World::of(linked(2))), "peer");
  EXPECT_EQ(taken(operation, World::of(peers(2))), "nccl");
  const Operation smaller = call(OpKind::kAllReduce, 4 << 20);
  EXPECT_EQ(taken(operation, World::of(linked(4))), "peer");
  EXPECT_EQ(taken(call(OpKind::kAllReduce, 17 << 20), World::of(linked(4))), "nccl");
  EXPECT_EQ(taken(call(OpKind::kReduceScatter, 16 << 20), World::of(linked(4))), "peer");
  EXPECT_EQ(taken(call(OpKind::kReduceScatter, 17 << 20), World::of(linked(4))), "nccl");
  EXPECT_EQ(taken(call(OpKind::kAllGather, 16 << 20), World::of(linked(4))), "peer");
  EXPECT_EQ(taken(call(OpKind::kAllGather, 17 << 20), World::of(linked(4))), "nccl");
  EXPECT_EQ(taken(smaller, World::of(linked(4))), "peer");
  EXPECT_EQ(taken(smaller, World::of(peers(4))), "nccl");
  EXPECT_EQ(taken(smaller, World::of(linked(5))), "nccl");
  EXPECT_EQ(taken(call(OpKind::kReduce, 4 << 20), World::of(linked(4))), "nccl");
  EXPECT_EQ(taken(call(OpKind::kAllToAll, 64 << 20), World::of(linked(3))), "peer");
  EXPECT_NE(taken(call(OpKind::kAllToAll, 64 << 20), World::of(peers(3))), "peer");
  EXPECT_EQ(taken(call(OpKind::kBroadcast, 4 << 20), World::of(linked(4))), "peer");
  EXPECT_EQ(taken(call(OpKind::kBroadcast, 5 << 20), World::of(linked(4))), "nccl");
}

TEST(WorldTest, KnowsNodesAndRails) {
  auto infos = peers(5);
  for (const std::size_t rank : {std::size_t{1}, std::size_t{4}}) infos[rank].node = "another node";
  infos[3].unsupported_reasons[index_of(gpu_rows::host_staged)] = "there is no NVRTC";
  infos[4].gpu = infos[1].gpu;
  const World world = World::of(infos);
  EXPECT_EQ(world.node_of_rank, (std::vector<int>{0, 1, 0, 0, 1}));
  ASSERT_EQ(world.nodes.size(), 2);
  EXPECT_EQ(world.node_count, 2);
  EXPECT_EQ(world.nodes[0].node_count, 1);
  EXPECT_EQ(world.rails[0].node_count, 2);
  EXPECT_EQ(world.nodes[0].ranks, 3);
  EXPECT_EQ(world.nodes[0].missing[kHostStaged], "on rank 3 there is no NVRTC");
  EXPECT_EQ(world.nodes[0].missing[kPeer], std::nullopt);
  EXPECT_EQ(world.nodes[1].missing[kPeer],
            "ranks 1 and 4 share one GPU, on which a kernel can wait for another "
            "one's only under MPS");
  ASSERT_EQ(world.rails.size(), 2);
  EXPECT_EQ(world.rails[1].ranks, 2);
  EXPECT_EQ(world.rails[1].missing[kNccl], std::nullopt);  // though ranks of a node share a GPU
  EXPECT_EQ(world.missing[index_of(gpu_rows::hierarchical)], std::nullopt);
  EXPECT_EQ(World::of(peers(4)).missing[index_of(gpu_rows::hierarchical)],
            "it is for several nodes, with several ranks on one of them");
}

TEST(WorldTest, SurvivesItsText) {
  GpuPeerInfo peer;
  peer.gpu = "0000:01";
  peer.node = "";
  peer.unsupported_reasons.resize(gpu_route_rows().size());
  peer.unsupported_reasons[kNccl] = "two\nlines";
  peer.unsupported_reasons[kPeer] = "none";
  const GpuPeerInfo read = GpuPeerInfo::from(peer.text());
  EXPECT_EQ(read.gpu, "0000:01");
  EXPECT_EQ(read.node, "");
  EXPECT_EQ(read.unsupported_reasons[kNccl], "two lines");
  EXPECT_EQ(read.unsupported_reasons[kPeer], "none");
  EXPECT_EQ(read.unsupported_reasons[kHostStaged], "");
  EXPECT_EQ(read.unsupported_reasons[kHostRelay], "");
}

TEST(DecideTest, LargeCallsGoByNcclAndSmallOnesBesideIt) {
  const World world = World::of(strangers(4));
  EXPECT_EQ(taken(call(OpKind::kAllReduce, kLarge), world), "nccl");
  EXPECT_EQ(taken(call(OpKind::kAllReduce, kLl), world), "host_staged");
  EXPECT_EQ(taken(call(OpKind::kBarrier, 0), world), "nccl");
  EXPECT_EQ(taken(call(OpKind::kSend, kLl), world), "nccl");
  EXPECT_EQ(taken(call(OpKind::kAllToAll, kLl), world), "host_staged in pairs");
}

TEST(DecideTest, GraphsHoldNcclAndWhatCountsOnTheDevice) {
  const auto captured = [](OpKind kind, std::int64_t bytes, const World& world) {
    return taken(call(kind, bytes), world, {}, /*capturing=*/true);
  };
  World world = World::of(strangers(2));
  EXPECT_EQ(captured(OpKind::kAllReduce, kLl, world), "host_staged");
  EXPECT_EQ(captured(OpKind::kAllReduce, 64 << 10, world), "nccl");  // eager, it would not
  EXPECT_EQ(captured(OpKind::kSend, kLl, world), "nccl");
  auto poor = strangers(2);
  poor[1].unsupported_reasons[kNccl] = "there is no NCCL";
  world = World::of(poor);
  EXPECT_EQ(captured(OpKind::kAllReduce, 64 << 10, world), "host_staged");
  EXPECT_EQ(captured(OpKind::kAllReduce, kLarge, world), "none");
  EXPECT_EQ(captured(OpKind::kSend, kLl, world), "none");
  auto shared = strangers(2);
  shared[1].gpu = shared[0].gpu;
  EXPECT_EQ(captured(OpKind::kAllReduce, kLl, World::of(shared)), "none");
  for (GpuPeerInfo& peer : shared) peer.mps = true;
  EXPECT_EQ(captured(OpKind::kAllReduce, kLl, World::of(shared)), "host_staged");
}

// Its pieces and messages are counted by the host.
TEST(DecideTest, GraphsHoldNoProtocolWhoseFlagsDifferFromReplayToReplay) {
  auto poor = strangers(2);
  poor[1].unsupported_reasons[kNccl] = "there is no NCCL";
  const World world = World::of(poor);
  const auto captured = [&](OpKind kind, const std::string& asked) {
    return taken(call(kind, kLl), world, asked, /*capturing=*/true);
  };
  EXPECT_EQ(captured(OpKind::kAllReduce, "host_staged/ll"), "host_staged");
  EXPECT_EQ(captured(OpKind::kAllReduce, "host_staged/pieces"), "none");
  EXPECT_EQ(captured(OpKind::kAllToAll, "host_staged/pairs"), "host_staged");
  EXPECT_EQ(captured(OpKind::kAllToAll, "host_staged/messages"), "none");
}

TEST(DecideTest, GpusThatMapEachOthersMemory) {
  World world = World::of(peers(2));
  EXPECT_EQ(taken(call(OpKind::kAllReduce, kLl), world), "peer");
  EXPECT_EQ(taken(call(OpKind::kAllReduce, kLarge), world), "nccl");
  EXPECT_EQ(taken(call(OpKind::kAllReduce, kLarge), world, "peer"), "peer");
  EXPECT_EQ(taken(call(OpKind::kAllToAll, kLl), world), "peer");
  EXPECT_EQ(taken(call(OpKind::kAllToAll, kLl), World::of(peers(4))), "peer in pairs");
  EXPECT_EQ(taken(call(OpKind::kAllReduce, kLarge, DType::kInt16), world), "peer");
  EXPECT_EQ(taken(call(OpKind::kSend, kLl), world), "nccl");
  EXPECT_EQ(taken(call(OpKind::kSend, kLl), world, "peer"), "peer");
  EXPECT_EQ(taken(call(OpKind::kAllReduce, kLl), world, {}, /*capturing=*/true), "peer");
  auto shared = peers(2);
  shared[1].gpu = shared[0].gpu;
  EXPECT_EQ(taken(call(OpKind::kAllReduce, kLarge), World::of(shared), "peer"), "host_staged");
  for (GpuPeerInfo& peer : shared) peer.mps = true;
  world = World::of(shared);
  EXPECT_EQ(taken(call(OpKind::kAllReduce, kLl), world), "peer");
  EXPECT_EQ(taken(call(OpKind::kAllReduce, kLarge), world, {}, /*capturing=*/true), "peer");
  EXPECT_EQ(taken(call(OpKind::kAllReduce, kLl), World::of(peers(17))), "host_staged");
}

TEST(DecideTest, TwoGpusTakeMoreBesideNccl) {
  constexpr std::int64_t kMiB = 1 << 20;
  const auto name = [](int ranks, OpKind kind, std::int64_t bytes) {
    return taken(call(kind, bytes), World::of(peers(ranks)));
  };
  EXPECT_EQ(name(2, OpKind::kAllReduce, 8 * kMiB), "peer");
  EXPECT_EQ(name(2, OpKind::kAllReduce, 9 * kMiB), "nccl");
  EXPECT_EQ(name(2, OpKind::kBroadcast, 16 * kMiB), "peer");
  EXPECT_EQ(name(2, OpKind::kBroadcast, 17 * kMiB), "nccl");
  EXPECT_EQ(name(2, OpKind::kAllToAll, 64 * kMiB), "peer");
  const auto between_linked = [](OpKind kind, std::int64_t bytes) {
    return taken(call(kind, bytes), World::of(linked(2)));
  };
  for (const OpKind kind : {OpKind::kAllReduce, OpKind::kReduce, OpKind::kReduceScatter}) {
    EXPECT_EQ(between_linked(kind, 128 * kMiB), "peer") << name_of(kind);
    EXPECT_EQ(between_linked(kind, 257 * kMiB), "nccl") << name_of(kind);
  }
  EXPECT_EQ(between_linked(OpKind::kAllGather, 128 * kMiB), "peer");
  EXPECT_EQ(between_linked(OpKind::kAllGather, 129 * kMiB), "nccl");
  EXPECT_EQ(between_linked(OpKind::kBroadcast, 64 * kMiB), "peer");
  EXPECT_EQ(between_linked(OpKind::kBroadcast, 65 * kMiB), "nccl");
  EXPECT_EQ(name(3, OpKind::kAllReduce, kMiB), "nccl");
  EXPECT_EQ(name(3, OpKind::kAllToAll, 64 * kMiB),
            "peer in pairs");  // of which no rank knows that none is small
}

TEST(DecideTest, ATunedRouteComesFirstWhereItServes) {
  set_tuned_rules("all_reduce@2:0-inf=host_staged");
  EXPECT_EQ(taken(call(OpKind::kAllReduce, kLl), World::of(peers(2))), "host_staged");
  EXPECT_EQ(taken(call(OpKind::kAllReduce, kLl), World::of(peers(4))), "peer");
  EXPECT_EQ(taken(call(OpKind::kAllReduce, kLl), World::of(peers(2)), "nccl"), "nccl");
  auto far = peers(2);
  far[1].node = "another";
  EXPECT_EQ(taken(call(OpKind::kAllReduce, kLl), World::of(far)), "nccl");
  set_tuned_rules("");
}

TEST(DecideTest, ATunedRouteIsForGroupsOnSoManyNodes) {
  const Operation small = call(OpKind::kAllReduce, kLl);
  auto far = peers(4);
  far[2].node = far[3].node = "another";
  set_tuned_rules("all_reduce@4/2:0-64k=hierarchical");
  EXPECT_EQ(taken(small, World::of(far)), "hierarchical");
  EXPECT_EQ(taken(call(OpKind::kAllReduce, kLarge), World::of(far)), "nccl");
  EXPECT_EQ(taken(small, World::of(peers(4))), "peer");
  set_tuned_rules("all_reduce@4/1:0-64k=host_relay");
  EXPECT_EQ(taken(small, World::of(far)), "nccl");
  EXPECT_EQ(taken(small, World::of(peers(4))), "host_relay");
  // Each rank alone on its node.
  for (std::size_t rank = 0; rank < far.size(); ++rank) far[rank].node = std::to_string(rank);
  set_tuned_rules("all_reduce@4/4:0-64k=host_relay");
  EXPECT_EQ(taken(small, World::of(far)), "host_relay");
  set_tuned_rules("");
}

TEST(DecideTest, SumsInTheOrderOfTheRanks) {
  World world = World::of(peers(2)), far = World::of(peers(2));
  world.deterministic = far.deterministic = true;
  far.missing[kPeer] = far.missing[kHostStaged] = "the ranks are on two nodes";
  EXPECT_EQ(taken(call(OpKind::kAllReduce, kLarge), world), "peer");
  EXPECT_EQ(taken(call(OpKind::kAllReduce, kLarge, DType::kInt32), world), "nccl");
  EXPECT_EQ(taken(call(OpKind::kAllGather, kLarge), world), "nccl");
  EXPECT_EQ(taken(call(OpKind::kAllReduce, kLarge), far), "none");
  EXPECT_EQ(taken(call(OpKind::kBroadcast, kLarge), far), "nccl");
}

TEST(DecideTest, RanksThatShareAGpu) {
  auto shared = strangers(2);
  shared[1].gpu = shared[0].gpu;
  const World world = World::of(shared);
  EXPECT_EQ(taken(call(OpKind::kAllReduce, kLl), world), "host_relay");
  EXPECT_EQ(taken(call(OpKind::kAllReduce, kLarge), world), "host_staged");
  EXPECT_EQ(taken(call(OpKind::kAllToAll, kLl), world), "host_staged");
}

TEST(DecideTest, WhatNcclHasNot) {
  const World world = World::of(strangers(2));
  EXPECT_EQ(taken(call(OpKind::kAllReduce, kLarge, DType::kInt16), world), "host_staged");
  EXPECT_EQ(taken(call(OpKind::kBroadcast, kLarge, DType::kInt16), world), "nccl") << "moved as bytes";
  Operation any = call(OpKind::kReceive, kLarge);
  any.root = kAnySource;
  EXPECT_EQ(taken(any, world), "none");
}

TEST(DecideTest, WhoAsksForStagingGetsEitherWay) {
  auto far = strangers(2);
  far[1].node = "another";
  const Operation large = call(OpKind::kAllReduce, kLarge);
  EXPECT_EQ(taken(large, World::of(far), "host_staged"), "host_relay");
  EXPECT_EQ(taken(large, World::of(strangers(2)), "host_staged"), "host_staged");
  EXPECT_EQ(taken(large, World::of(strangers(2)), "host_relay"), "host_relay");
  far[0].unsupported_reasons[kNccl] = "there is none";
  EXPECT_EQ(taken(large, World::of(far), "nccl"), "none");
}

TEST(DecideTest, SeveralOperationsAtOnceGoTheSameWay) {
  const World world = World::of(strangers(2));
  const std::vector<Operation> two = {call(OpKind::kAllReduce, kLl),
                                      call(OpKind::kAllReduce, kLl, DType::kInt16)};
  EXPECT_TRUE(unsupported_reason({.row = &gpu_rows::nccl}, two, world).has_value());
  EXPECT_FALSE(unsupported_reason({.row = &gpu_rows::host_staged}, two, world).has_value());
  decide(two, world, Rules(), [](const Route& route) {
    EXPECT_FALSE(route.early);
    return false;
  });
}

// By the size of the first alone, ranks would send the second by a protocol that is for less.
TEST(DecideTest, ARuleForSizesIsForAllOfSeveralOperations) {
  const RouteSetting setting("all_reduce:0-64k=host_staged,cuda=nccl");
  const Rules rules;
  const Operation small = call(OpKind::kAllReduce, kLl), large = call(OpKind::kAllReduce, kLarge);
  EXPECT_EQ(rules.gpu_route({{small, small}}, {2, 1}), "host_staged");
  EXPECT_EQ(rules.gpu_route({{small, large}}, {2, 1}), "nccl");
  EXPECT_EQ(rules.gpu_route({{large, small}}, {2, 1}), "nccl");
  // Several kinds, of which each is named.
  const RouteSetting both("all_reduce=peer,all_gather=peer,broadcast=nccl");
  const Rules named;
  const Operation gather = call(OpKind::kAllGather, kLl), broadcast = call(OpKind::kBroadcast, kLl);
  EXPECT_EQ(named.gpu_route({{small, gather}}, {2, 1}), "peer");
  EXPECT_EQ(named.gpu_route({{small, broadcast}}, {2, 1}), "");
}

// A rank of a pipeline has both in one batch, its neighbours one of them.
TEST(DecideTest, SendsAndReceivesGoTheSameWay) {
  const Operation send = call(OpKind::kSend, kLl), receive = call(OpKind::kReceive, kLarge);
  for (const char* text : {"send=host_relay", "recv=host_relay", "send=host_relay,recv=host_relay"}) {
    const RouteSetting setting(text);
    const Rules rules;
    for (const auto& batch : {std::vector{send}, std::vector{receive}, std::vector{receive, send}})
      EXPECT_EQ(rules.gpu_route(batch, {2, 1}), "host_relay") << text;
  }
}

std::vector<std::string> windows_offered(bool on_gpu, const std::string& rule) {
  const RouteSetting setting(rule);
  Operation operation;
  operation.kind = OpKind::kOneSided;
  if (on_gpu) operation.device = 0;
  std::vector<std::string> names;
  decide({&operation, 1}, World{.ranks = 2}, Rules(), [&](const Route& way) {
    names.emplace_back(way.name);
    return false;
  });
  return names;
}

TEST(DecideTest, OffersWindowsTheirWays) {
  using Names = std::vector<std::string>;
  EXPECT_EQ(windows_offered(false, ""), (Names{"shm", "mpi", "messages"}));
  EXPECT_EQ(windows_offered(false, "window=messages"), (Names{"messages", "shm", "mpi"}));
  EXPECT_EQ(windows_offered(true, ""), (Names{"peer", "host_staged", "host_relay"}));
  EXPECT_EQ(windows_offered(true, "window=nccl"), (Names{"nccl", "peer", "host_staged", "host_relay"}));
}

}  // namespace
}  // namespace altorch
