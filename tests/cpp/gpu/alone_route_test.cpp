// SPDX-License-Identifier: BSD-3-Clause
// One rank on the fake device: its results, and that it starts nothing for others.
#include <gtest/gtest.h>

#include "gpu/gpu_ranks.h"
#include "support/route_setting.h"

namespace altorch {
namespace {

using staged::numbers;
using staged::operation_of;

constexpr OpKind kKinds[] = {OpKind::kAllReduce,     OpKind::kReduce,   OpKind::kAllGather, OpKind::kGather,
                             OpKind::kReduceScatter, OpKind::kAllToAll, OpKind::kScatter};

void expect_own_input(GpuRank& me, const char* route) {
  const auto input = numbers(1000, 0);
  for (const OpKind kind : kKinds) {
    std::vector<float> output(1000);
    EXPECT_EQ(me.call(operation_of(kind, input.data(), output.data(), 1000)), route) << name_of(kind);
    me.finish();
    EXPECT_EQ(output, input) << name_of(kind);
    output = input;
    EXPECT_EQ(me.call(operation_of(kind, output.data(), output.data(), 1000)), route);
    me.finish();
    EXPECT_EQ(output, input) << name_of(kind) << " in place";
  }
  std::vector<float> kept = input;
  me.call(operation_of(OpKind::kBroadcast, nullptr, kept.data(), 1000));
  me.call(operation_of(OpKind::kBarrier, nullptr, nullptr, 0));
  me.call(operation_of(OpKind::kAllReduce, input.data(), kept.data(), 0));
  me.finish();
  EXPECT_EQ(kept, input);
}

TEST(AloneRoute, HasItsInputForItsResult) {
  for (const char* const asked : {"", "cuda=nccl", "cuda=host_staged"}) {
    SCOPED_TRACE(asked);
    const RouteSetting setting(asked);
    GpuWorld world(own_gpus(1));
    world.run([&](GpuRank& me) {
      expect_own_input(me, "alone");
      EXPECT_EQ(world.nccl().open_communicators(), 0) << "a rank alone needs none";
    });
  }
}

TEST(AloneRoute, TakesBlocksOfAnySize) {
  GpuWorld world(own_gpus(1));
  world.run([](GpuRank& me) {
    const auto input = numbers(1000, 0);
    constexpr std::int64_t kCounts[] = {700};
    for (const OpKind kind : {OpKind::kAllToAll, OpKind::kAllGather, OpKind::kReduceScatter}) {
      std::vector<float> output(1000);
      Operation uneven = operation_of(kind, input.data(), output.data(), 700);
      if (kind != OpKind::kReduceScatter) uneven.output_counts = kCounts;
      if (kind != OpKind::kAllGather) uneven.input_counts = kCounts;
      EXPECT_EQ(me.call(uneven), "alone");
      me.finish();
      std::vector<float> want = input;
      std::fill(want.begin() + 700, want.end(), 0.0f);
      EXPECT_EQ(output, want) << name_of(kind);
    }
  });
}

TEST(AloneRoute, LeavesToOthersWhatItHasNot) {
  GpuWorld world(own_gpus(1));
  world.run([](GpuRank& me) {
    const auto input = numbers(100, 0);
    std::vector<float> output(100);
    Operation half = operation_of(OpKind::kAllReduce, input.data(), output.data(), 100);
    half.op = ReduceOp::kPremulSum;
    half.factor = 0.5;
    EXPECT_NE(me.call(half), "alone");
    me.finish();
    for (std::size_t each = 0; each < input.size(); ++each) EXPECT_EQ(output[each], 0.5f * input[each]);
  });
}

// NCCL must not be opened while a graph is captured.
TEST(AloneRoute, LeavesToOthersInGraphsWhatTheyHaveDoneBefore) {
  GpuWorld world(own_gpus(1));
  world.run([&](GpuRank& me) {
    std::vector<float> one(100);
    Operation half = operation_of(OpKind::kAllReduce, one.data(), one.data(), 100);
    EXPECT_STREQ(me.routes.choose({&half, 1}, /*capturing=*/true).name(), "alone") << "opened in the graph";
    half.op = ReduceOp::kPremulSum;
    EXPECT_THROW(me.routes.choose({&half, 1}, /*capturing=*/true), Error);
    EXPECT_EQ(world.nccl().open_communicators(), 0);
  });
}

TEST(AloneRoute, IsNotForTwo) {
  GpuWorld world(own_gpus(2));
  world.run([](GpuRank& me) {
    std::vector<float> one(1000);
    EXPECT_NE(me.call(operation_of(OpKind::kAllReduce, one.data(), one.data(), 1000)), "alone");
    me.finish();
  });
}

}  // namespace
}  // namespace altorch
