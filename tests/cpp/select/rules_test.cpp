// SPDX-License-Identifier: BSD-3-Clause
#include "select/rules.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "base/error.h"
#include "select/decide.h"
#include "support/route_setting.h"

namespace altorch {
namespace {

Operation all_reduce(std::int64_t bytes) {
  Operation operation;
  operation.kind = OpKind::kAllReduce;
  operation.count = bytes;
  return operation;
}

// Of a group whose transport has native collectives, or has none.
Route chosen(const Operation& operation, int size, bool native_offered) {
  World world{.ranks = size};
  if (native_offered) world.native = {{"native", [](const Call&) { return true; }}};
  return decide(operation, world, Rules());
}

TEST(Route, EveryCollectiveHasOneForEverySize) {
  for (int kind = 0; kind <= static_cast<int>(OpKind::kBarrier); ++kind) {
    for (const int size : {1, 2, 3, 8, 64}) {
      for (std::int64_t count = 0; count < (1 << 28); count = count * 4 + 1) {
        Operation operation;
        operation.kind = static_cast<OpKind>(kind);
        operation.count = count;
        const Route route = chosen(operation, size, false);
        ASSERT_NE(route.algorithm, nullptr) << name_of(operation.kind);
        ASSERT_EQ(route.algorithm->kind, operation.kind);
      }
    }
  }
}

TEST(Route, UnevenCallsGetAlgorithmsThatTakeThem) {
  const std::vector<std::int64_t> counts = {1, 2, 3};
  for (const OpKind kind :
       {OpKind::kAllGather, OpKind::kReduceScatter, OpKind::kAllToAll, OpKind::kGather, OpKind::kScatter}) {
    Operation operation;
    operation.kind = kind;
    operation.input_counts = operation.output_counts = counts;
    EXPECT_FALSE(chosen(operation, 3, true).algorithm->even_only) << name_of(kind);
  }
}

// One rank may have even blocks by chance, and others may not.
TEST(Route, AllToAllIsTheSameForEvenAndUnevenBlocks) {
  const std::vector<std::int64_t> counts(16, 1);
  for (const std::int64_t count : {1, 16, 100'000}) {
    Operation even;
    even.kind = OpKind::kAllToAll;
    even.count = count;
    Operation uneven = even;
    uneven.input_counts = uneven.output_counts = counts;
    EXPECT_EQ(chosen(even, 16, false).name, chosen(uneven, 16, false).name);
  }
}

TEST(Route, LargeHalfTypesNeedNoWideMessages) {
  for (const OpKind kind : {OpKind::kAllReduce, OpKind::kReduce, OpKind::kReduceScatter}) {
    for (const int size : {3, 4, 8, 64}) {
      Operation operation;
      operation.kind = kind;
      operation.dtype = DType::kBFloat16;
      operation.count = 8 << 20;
      EXPECT_TRUE(chosen(operation, size, false).algorithm->combines) << name_of(kind) << " " << size;
    }
  }
}

TEST(Route, FollowsTheSetting) {
  const RouteSetting setting("all_reduce:0-64k=ring,all_reduce=native");
  EXPECT_EQ(chosen(all_reduce(100), 4, true).name, "ring");
  EXPECT_EQ(chosen(all_reduce(65536), 4, true).name, "native");
  // What the library does not offer goes our way.
  EXPECT_NE(chosen(all_reduce(65536), 4, false).name, "native");
}

TEST(Route, ChoosesRoutesOfCudaTensorsApart) {
  const RouteSetting setting("all_reduce:0-64k=host_staged,all_reduce=ring,cuda=nccl");
  EXPECT_EQ(Rules().gpu_route({{all_reduce(100)}}, {4, 1}), "host_staged");
  EXPECT_EQ(Rules().gpu_route({{all_reduce(65536)}}, {4, 1}), "nccl");
  EXPECT_EQ(chosen(all_reduce(100), 4, true).name, "ring");
  EXPECT_EQ(Rules().gpu_route({{all_reduce(100)}}, {4, 1}), "host_staged");
}

TEST(Route, NamesAProtocolBehindARoute) {
  const RouteSetting setting("all_reduce:0-64k=peer/ll128,cuda=peer");
  const Rules rules;
  EXPECT_EQ(rules.gpu_route({{all_reduce(100)}}, {4, 1}), "peer");
  EXPECT_EQ(rules.gpu_protocol(all_reduce(100), {4, 1}, "peer"), "ll128");
  EXPECT_EQ(rules.gpu_protocol(all_reduce(100), {4, 1}, "host_staged"), "");  // which goes in its place
  EXPECT_EQ(rules.gpu_protocol(all_reduce(65536), {4, 1}, "peer"), "");
}

TEST(Route, NamesAProtocolOfSharedMemory) {
  const RouteSetting setting("all_reduce:0-64k=shm/two_steps,all_reduce=shm");
  World world{.ranks = 4};
  world.native = {{"shm", [](const Call&) { return true; }, /*finishes_reductions=*/true}};
  EXPECT_EQ(decide(all_reduce(100), world, Rules()).protocol, "two_steps");
  EXPECT_EQ(decide(all_reduce(65536), world, Rules()).protocol, "");
}

TEST(Route, IsForGroupsOfSoManyRanks) {
  const RouteSetting setting("all_reduce@4:0-64k=ring,all_reduce@2=pairwise");
  EXPECT_EQ(chosen(all_reduce(100), 4, false).name, "ring");
  EXPECT_EQ(chosen(all_reduce(65536), 2, false).name, "pairwise");
  EXPECT_NE(chosen(all_reduce(100), 8, false).reason, std::string(kByRule));
}

TEST(Route, IsForGroupsOnSoManyNodes) {
  const RouteSetting setting("all_reduce@16/2:0-64k=hierarchical,all_reduce@16=nccl");
  const Rules rules;
  EXPECT_EQ(rules.gpu_route({{all_reduce(100)}}, {16, 2}), "hierarchical");
  EXPECT_EQ(rules.gpu_route({{all_reduce(65536)}}, {16, 2}), "nccl");
  EXPECT_EQ(rules.gpu_route({{all_reduce(100)}}, {8, 2}), "");
  for (const int other : {0, 1, 3, 16}) {
    EXPECT_FALSE(rules.all().front().applies(all_reduce(100), 100, {16, other})) << other;
    EXPECT_EQ(rules.gpu_route({{all_reduce(100)}}, {16, other}), "nccl") << other;
  }
  EXPECT_EQ(rules.all().front().nodes, 2);
  EXPECT_EQ(rules.all().back().nodes, 0);
}

TEST(Route, OfHostMemoryIsForGroupsOnSoManyNodes) {
  const RouteSetting setting("all_reduce@4/2=ring");
  const auto reason = [](int nodes) {
    return std::string(decide(all_reduce(100), World{.ranks = 4, .node_count = nodes}, Rules()).reason);
  };
  EXPECT_EQ(reason(2), kByRule);
  for (const int other : {0, 1, 4}) EXPECT_NE(reason(other), kByRule) << other;
}

// Else ranks would choose apart.
TEST(Route, RangesOfSizesAreForSizesThatAllRanksKnow) {
  const RouteSetting setting("cuda:0-64k=host_staged,all_to_all=pairwise");
  const Rules rules;
  const std::vector<std::int64_t> counts = {1, 2};
  const auto applies = [&](OpKind kind, bool uneven) {
    Operation operation;
    operation.kind = kind;
    operation.count = 1;
    if (uneven) operation.input_counts = operation.output_counts = counts;
    return rules.all().front().applies(operation, 8, {2, 1});
  };
  EXPECT_TRUE(applies(OpKind::kAllGather, true));
  EXPECT_TRUE(applies(OpKind::kAllReduce, false));
  for (const OpKind kind : {OpKind::kAllToAll, OpKind::kGather, OpKind::kScatter, OpKind::kSend})
    EXPECT_FALSE(applies(kind, false)) << name_of(kind);
  for (const char* refused : {"all_to_all:0-64k=linear", "gather:0-1k=linear", "scatter:1k-inf=linear"}) {
    const RouteSetting wrong(refused);
    EXPECT_THROW(Rules(), Error) << refused;
  }
}

TEST(Route, TunedRulesComeAfterThoseOfTheSetting) {
  struct Tuned {
    explicit Tuned(const std::string& text) { set_tuned_rules(text); }
    ~Tuned() { set_tuned_rules(""); }
  } const tuned("all_reduce@4:0-64k=ring,broadcast@2=peer/ll128");
  EXPECT_STREQ(chosen(all_reduce(100), 4, false).reason, kTuned);
  Operation broadcast = all_reduce(100);
  broadcast.kind = OpKind::kBroadcast;
  EXPECT_EQ(Rules().tuned_gpu_route(broadcast, {2, 1}), "peer");
  EXPECT_EQ(Rules().gpu_route({{broadcast}}, {2, 1}), "");  // the other routes serve where it cannot
  EXPECT_EQ(Rules().gpu_protocol(broadcast, {2, 1}, "peer"), "ll128");
  EXPECT_THROW(set_tuned_rules("all_reduce=fastest"), Error);
  EXPECT_STREQ(chosen(all_reduce(100), 4, false).reason, kTuned) << "a refused text changes nothing";
  const RouteSetting setting("all_reduce=pairwise");
  EXPECT_EQ(chosen(all_reduce(100), 4, false).name, "pairwise");
}

TEST(Route, RefusesSettingsThatNameNothing) {
  for (const char* text : {"all_reduce=fastest",
                           "cuda=ring",
                           "cuda=peer/",
                           "cuda=peer/pieces",
                           "cuda=nccl/ll",
                           "cuda=/ll",
                           "all_reduce=shm/fastest",
                           "all_reduce@0=ring",
                           "all_reduce@=ring",
                           "all_reduce@two=ring",
                           "all_reduce@16/0=ring",
                           "all_reduce@16/17=ring",
                           "all_reduce@16/=ring",
                           "all_reduce@16/x=ring",
                           "all_reduce@16/2/1=ring",
                           "all_reduce@/2=ring",
                           "window@2/1=messages",
                           "window@2=messages",
                           "all_reduce=native/one_step",
                           "cuda=shm/one_step",
                           "cuda=native",
                           "cuda=fastest",
                           "allreduce=ring",
                           "all_reduce",
                           "all_reduce:4=ring",
                           "all_reduce:a-b=ring",
                           "all_reduce:1x-2x=ring"}) {
    const RouteSetting setting(text);
    EXPECT_THROW(Rules(), Error) << text;
  }
}

TEST(Route, RefusesSizesThatAreNone) {
  for (const char* size : {"-5", "9223372036854775807k", "99999999999999999999", "", "k", " 1"}) {
    const RouteSetting setting("all_reduce:" + std::string(size) + "-inf=ring");
    EXPECT_THROW(Rules(), Error) << size;
  }
}

TEST(Route, NamesWhatCarriesWindows) {
  EXPECT_EQ(Rules().window(), "");
  {
    const RouteSetting setting("all_reduce=ring,window=messages");
    EXPECT_EQ(Rules().window(), "messages");
    EXPECT_EQ(Rules().all().size(), 1u);
  }
  {
    const RouteSetting setting("window=host_staged");
    EXPECT_EQ(Rules().window(), "host_staged");
  }
  for (const char* wrong : {"window=pigeons", "window:0-1k=messages", "window=hierarchical"}) {
    const RouteSetting setting(wrong);
    EXPECT_THROW(Rules(), Error) << wrong;
  }
}

}  // namespace
}  // namespace altorch
