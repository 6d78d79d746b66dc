// SPDX-License-Identifier: BSD-3-Clause
// Groups that give the GPU's memory back, and go on later.
#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <thread>

#include "gpu/gpu_ranks.h"
#include "support/says.h"

namespace altorch {
namespace {

using staged::numbers;
using staged::operation_of;
using staged::sum;

constexpr std::int64_t kSuspendedSmall = 100,
                       kSuspendedLarge = 140'000;  // of float32: by peer or host_staged, and by NCCL
constexpr int kKeeps = 22907;                      // an NCCL that suspends

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

void suspend(const GpuRank& me) { me.routes.suspend(call(), ""); }
void resume(const GpuRank& me) { me.routes.resume(call()); }

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
        sums(me, kSuspendedSmall, small);
        sums(me, kSuspendedLarge, "nccl");
        EXPECT_GT(me.routes.memory().suspendable, 0u);
        EXPECT_FALSE(me.routes.memory().suspended);
        suspend(me);
        EXPECT_EQ(me.routes.memory().suspendable, 0u);
        EXPECT_EQ(me.routes.memory().persistent, 0u);
        EXPECT_TRUE(me.routes.memory().suspended);
        EXPECT_EQ(me.routes.nccl_communicator(), nullptr);
        resume(me);
      }
      sums(me, kSuspendedSmall, small);
      sums(me, kSuspendedLarge, "nccl");
    });
    EXPECT_EQ(world.nccl().calls("ncclCommInitRankConfig"), 3 * 3);
    EXPECT_EQ(world.nccl().calls("ncclCommDestroy"), 3 * 3);
  }
}

TEST(SuspendGpuRoutes, LeaveTheCommunicatorToAnNcclThatCan) {
  GpuWorld world(mapped(2), kKeeps);
  world.run([&](GpuRank& me) {
    sums(me, kSuspendedSmall, "peer");
    EXPECT_EQ(me.routes.memory().persistent, FakeNccl::kPersistent);
    EXPECT_GT(me.routes.memory().suspendable, FakeNccl::kSuspendable);
    suspend(me);
    EXPECT_EQ(me.routes.memory().persistent, FakeNccl::kPersistent);
    EXPECT_EQ(me.routes.memory().suspendable, 0u);
    resume(me);
    sums(me, kSuspendedSmall, "peer");
    suspend(me);  // and so it ends
  });
  EXPECT_EQ(world.nccl().calls("ncclCommInitRankConfig"), 2);
  EXPECT_EQ(world.nccl().calls("ncclCommSuspend"), 4);
  EXPECT_EQ(world.nccl().calls("ncclCommResume"), 4);
}

TEST(SuspendGpuRoutes, KeepWhatGraphsUse) {
  GpuWorld world(mapped(2), kKeeps);
  world.run([&](GpuRank& me) {
    sums(me, kSuspendedSmall, "peer");
    std::vector<float> x(kSuspendedSmall, 1.0f);
    captures(me, x);
    suspend(me);
    const auto left = me.routes.memory();
    EXPECT_GT(left.persistent, FakeNccl::kPersistent);  // peer's
    EXPECT_EQ(left.suspendable, 0u);
    resume(me);
    sums(me, kSuspendedSmall, "peer");
  });
  GpuWorld older(mapped(2));
  older.run([&](GpuRank& me) {
    sums(me, kSuspendedSmall, "peer");
    std::vector<float> x(kSuspendedSmall, 1.0f);
    captures(me, x);
    expect_error([&] { suspend(me); },
                 "nothing can be given back: on rank 0 NCCL 2.28.9 cannot give a communicator's memory back "
                 "(2.29.7 can), and CUDA graphs use it");
    EXPECT_FALSE(me.routes.memory().suspended);
    sums(me, kSuspendedSmall, "peer");
  });
}

// Nothing of it takes memory, and the rules are those of all.
TEST(SuspendGpuRoutes, OfARankAlone) {
  GpuWorld world(own_gpus(1));
  world.run([&](GpuRank& me) {
    sums(me, kSuspendedSmall, "alone");
    EXPECT_EQ(me.routes.memory().suspendable, 0u);
    suspend(me);
    EXPECT_TRUE(me.routes.memory().suspended);
    std::vector<float> x(kSuspendedSmall);
    const Operation refused = operation_of(OpKind::kAllReduce, x.data(), x.data(), kSuspendedSmall);
    expect_error([&] { me.routes.choose({&refused, 1}, /*capturing=*/false); }, "calls resume() first");
    expect_error([&] { suspend(me); }, "it is suspended already");
    resume(me);
    sums(me, kSuspendedLarge, "alone");
  });
  EXPECT_EQ(world.nccl().calls("ncclCommInitRankConfig"), 0);
}

TEST(SuspendGpuRoutes, RefuseCallsUntilTheyResume) {
  GpuWorld world(own_gpus(2));
  world.run([&](GpuRank& me) {
    sums(me, kSuspendedSmall, "host_staged");
    suspend(me);
    std::vector<float> x(kSuspendedSmall);
    const Operation refused = operation_of(OpKind::kAllReduce, x.data(), x.data(), kSuspendedSmall);
    expect_error([&] { me.routes.choose({&refused, 1}, /*capturing=*/false); }, "calls resume() first");
    expect_error([&] { suspend(me); }, "it is suspended already");
    resume(me);
    expect_error([&] { resume(me); }, "it is not suspended");
    sums(me, kSuspendedSmall, "host_staged");
  });
}

// Otherwise some ranks would make a route anew that others still have.
TEST(SuspendGpuRoutes, KeepWhatGraphsOfSomeRanksUse) {
  GpuWorld world(mapped(3), kKeeps);
  world.run([&](GpuRank& me) {
    sums(me, kSuspendedSmall, "peer");
    std::vector<float> x(4, static_cast<float>(me.rank));
    if (me.rank < 2) {
      const OpKind kind = me.rank == 0 ? OpKind::kSend : OpKind::kReceive;
      const Operation message = operation_of(kind, x.data(), x.data(), 4, 1 - me.rank);
      me.routes.enqueue(me.routes.choose({&message, 1}, /*capturing=*/true), {&message, 1}, me.stream);
    }
    me.finish();
    suspend(me);
    EXPECT_GT(me.routes.memory().persistent, FakeNccl::kPersistent);
    resume(me);
    sums(me, kSuspendedSmall, "peer");
  });
}

TEST(SuspendGpuRoutes, AreLookedAtMeanwhile) {
  GpuWorld world(mapped(2));
  world.run([&](GpuRank& me) {
    std::atomic<bool> over{false};
    std::thread watch([&] {
      while (!over) {
        EXPECT_FALSE(me.routes.failure());
        me.routes.memory();
        std::this_thread::sleep_for(std::chrono::microseconds(200));
      }
    });
    const auto join = [&](int*) {
      over = true;
      watch.join();
    };
    int any = 0;
    const std::unique_ptr<int, decltype(join)> joined(&any, join);
    for (int again = 0; again < 4; ++again) {
      sums(me, kSuspendedSmall, "peer");
      suspend(me);
      resume(me);
    }
  });
}

// Memory that another program has taken meanwhile, say: who has his waits in NCCL for the others.
TEST(SuspendGpuRoutes, AnErrorOfOneRankEndsTheWaitOfTheOthers) {
  GpuWorld world(mapped(2), kKeeps);
  world.nccl().fail("ncclCommResume", 1);
  world.nccl().hang("ncclCommResume", 0);
  const auto errors = world.try_to([&](GpuRank& me) {
    sums(me, kSuspendedSmall, "peer");
    suspend(me);
    try {
      resume(me);
    } catch (const Error& error) {
      throw me.group.abort_call(call(), error);  // as the backend closes it
    }
  });
  EXPECT_TRUE(says(errors[0], "rank 1 of the group aborted")) << errors[0];
  EXPECT_TRUE(says(errors[0], "ncclCommResume failed")) << errors[0];
  EXPECT_TRUE(says(errors[1], "ncclCommResume failed")) << errors[1];
}

// NCCL would refuse that, and the group be of no use.
TEST(SuspendGpuRoutes, AreMadeAnewWhereCommunicatorsShareMemory) {
  GpuWorld world(mapped(2), kKeeps);
  world.run([&](GpuRank& me) {
    sums(me, kSuspendedSmall, "peer");
    auto part =
        me.routes.nccl_communicator()->split(0, me.rank, 0, 2, std::chrono::seconds(20), {.split_share = 1});
    EXPECT_TRUE(says(part->suspend_unsupported_reason().value_or(""), "split_share"));
    suspend(me);
    EXPECT_EQ(me.routes.nccl_communicator(), nullptr);
    resume(me);
    sums(me, kSuspendedSmall, "peer");
  });
  EXPECT_EQ(world.nccl().calls("ncclCommSuspend"), 0);
}

TEST(SuspendGpuRoutes, RegisterNoMemoryMeanwhile) {
  GpuWorld world(mapped(2), kKeeps);
  world.run([&](GpuRank& me) {
    sums(me, kSuspendedSmall, "peer");
    suspend(me);
    std::vector<float> x(kSuspendedSmall);
    expect_error([&] { me.routes.nccl_communicator()->add_buffer(x.data(), 4 * kSuspendedSmall, false); },
                 "resume() it first");
    resume(me);
    me.routes.nccl_communicator()->add_buffer(x.data(), 4 * kSuspendedSmall, false);
    me.routes.nccl_communicator()->remove_buffer(x.data());
  });
}

TEST(SuspendGpuRoutes, TheReasonOfOneRankIsToldToAll) {
  GpuWorld world(mapped(2));
  world.run([&](GpuRank& me) {
    sums(me, kSuspendedSmall, "peer");
    expect_error([&] { me.routes.suspend(call(), me.rank == 1 ? "a graph is captured" : ""); },
                 "on rank 1 a graph is captured");
    sums(me, kSuspendedSmall, "peer");
  });
}

TEST(SuspendGpuRoutes, SayWhoHasNotCome) {
  GpuWorld world(own_gpus(2));
  const auto errors = world.try_to([&](GpuRank& me) {
    sums(me, kSuspendedSmall, "host_staged");
    Operation soon = call();
    soon.timeout = std::chrono::milliseconds(300);
    if (me.rank == 0) me.routes.suspend(soon, "");
  });
  EXPECT_NE(errors[0].find("rank 1 has not come to suspend()"), std::string::npos) << errors[0];
  EXPECT_EQ(errors[1], "");
}

}  // namespace
}  // namespace altorch
