// Groups that give the GPU's memory back, and go on later.
#include <gtest/gtest.h>

#include "engine/gpu_ranks.h"
#include "support/says.h"

namespace altorch {
namespace {

using staged::numbers;
using staged::operation_of;
using staged::sum;

constexpr std::int64_t kSmall = 100, kLarge = 140'000;  // of float32: by peer or host_staged, and by NCCL
constexpr int kKeeps = 22907;                           // an NCCL that suspends

void sums(const GpuRank& me, std::int64_t count, const std::string& route) {
  auto x = numbers(count, me.rank);
  EXPECT_EQ(me.call(operation_of(OpKind::kAllReduce, x.data(), x.data(), count)), route);
  me.finish();
  EXPECT_EQ(x, sum(count, me.size));
}

template <typename Body>
void expect_error(Body&& body, std::string_view words) {
  try {
    body();
    ADD_FAILURE() << "no error that says " << words;
  } catch (const Error& error) {
    EXPECT_TRUE(says(error.what(), words)) << error.what();
  }
}

Operation call() { return operation_of(OpKind::kAllReduce, nullptr, nullptr, 1); }

std::vector<Surroundings> mapped(int ranks) {
  auto places = own_gpus(ranks);
  for (Surroundings& place : places) place.cannot_export = "";
  return places;
}

void captures(GpuRank& me, std::vector<float>& x) {
  const Operation captured =
      operation_of(OpKind::kAllReduce, x.data(), x.data(), static_cast<std::int64_t>(x.size()));
  me.routes.enqueue(me.routes.choose({&captured, 1}, /*capturing=*/true), {&captured, 1}, me.stream);
  me.finish();
}

TEST(SuspendGpuRoutes, AreMadeAnewWhereNcclKeepsNothing) {
  for (const bool maps : {true, false}) {
    GpuWorld world(maps ? mapped(3) : own_gpus(3));
    const std::string small = maps ? "peer" : "host_staged";
    world.run([&](GpuRank& me) {
      for (int again = 0; again < 2; ++again) {
        sums(me, kSmall, small);
        sums(me, kLarge, "nccl");
        EXPECT_GT(me.routes.memory().suspendable, 0u);
        EXPECT_FALSE(me.routes.memory().suspended);
        me.routes.suspend(call());
        EXPECT_EQ(me.routes.memory().suspendable, 0u);
        EXPECT_EQ(me.routes.memory().persistent, 0u);
        EXPECT_TRUE(me.routes.memory().suspended);
        EXPECT_EQ(me.routes.nccl_communicator(), nullptr);
        me.routes.resume(call());
      }
      sums(me, kSmall, small);
      sums(me, kLarge, "nccl");
    });
    EXPECT_EQ(world.nccl().calls("ncclCommInitRankConfig"), 3 * 3);
    EXPECT_EQ(world.nccl().calls("ncclCommDestroy"), 3 * 3);
  }
}

TEST(SuspendGpuRoutes, LeaveTheCommunicatorToAnNcclThatCan) {
  GpuWorld world(mapped(2), kKeeps);
  world.run([&](GpuRank& me) {
    sums(me, kSmall, "peer");
    EXPECT_EQ(me.routes.memory().persistent, FakeNccl::kPersistent);
    EXPECT_GT(me.routes.memory().suspendable, FakeNccl::kSuspendable);
    me.routes.suspend(call());
    EXPECT_EQ(me.routes.memory().persistent, FakeNccl::kPersistent);
    EXPECT_EQ(me.routes.memory().suspendable, 0u);
    me.routes.resume(call());
    sums(me, kSmall, "peer");
    me.routes.suspend(call());  // and so it ends
  });
  EXPECT_EQ(world.nccl().calls("ncclCommInitRankConfig"), 2);
  EXPECT_EQ(world.nccl().calls("ncclCommSuspend"), 4);
  EXPECT_EQ(world.nccl().calls("ncclCommResume"), 4);
}

TEST(SuspendGpuRoutes, KeepWhatGraphsUse) {
  GpuWorld world(mapped(2), kKeeps);
  world.run([&](GpuRank& me) {
    sums(me, kSmall, "peer");
    std::vector<float> x(kSmall, 1.0f);
    captures(me, x);
    me.routes.suspend(call());
    const auto left = me.routes.memory();
    EXPECT_GT(left.persistent, FakeNccl::kPersistent);  // peer's
    EXPECT_EQ(left.suspendable, 0u);
    me.routes.resume(call());
    sums(me, kSmall, "peer");
  });
  GpuWorld older(mapped(2));
  older.run([&](GpuRank& me) {
    sums(me, kSmall, "peer");
    std::vector<float> x(kSmall, 1.0f);
    captures(me, x);
    expect_error([&] { me.routes.suspend(call()); },
                 "nothing can be given back: on rank 0 NCCL 2.28.9 cannot give a communicator's memory back "
                 "(2.29.7 can), and CUDA graphs use it");
    EXPECT_FALSE(me.routes.memory().suspended);
    sums(me, kSmall, "peer");
  });
}

TEST(SuspendGpuRoutes, RefuseCallsUntilTheyResume) {
  GpuWorld world(own_gpus(2));
  world.run([&](GpuRank& me) {
    sums(me, kSmall, "host_staged");
    me.routes.suspend(call());
    std::vector<float> x(kSmall);
    const Operation refused = operation_of(OpKind::kAllReduce, x.data(), x.data(), kSmall);
    expect_error([&] { me.routes.choose({&refused, 1}, /*capturing=*/false); }, "calls resume() first");
    expect_error([&] { me.routes.suspend(call()); }, "it is suspended already");
    me.routes.resume(call());
    expect_error([&] { me.routes.resume(call()); }, "it is not suspended");
    sums(me, kSmall, "host_staged");
  });
}

TEST(SuspendGpuRoutes, SayWhoHasNotCome) {
  GpuWorld world(own_gpus(2));
  const auto errors = world.try_to([&](GpuRank& me) {
    sums(me, kSmall, "host_staged");
    Operation soon = call();
    soon.timeout = std::chrono::milliseconds(300);
    if (me.rank == 0) me.routes.suspend(soon);
  });
  EXPECT_NE(errors[0].find("rank 1 has not come to suspend()"), std::string::npos) << errors[0];
  EXPECT_EQ(errors[1], "");
}

}  // namespace
}  // namespace altorch
