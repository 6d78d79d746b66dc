// SPDX-License-Identifier: BSD-3-Clause
// What goes wrong on the way of calls on CUDA tensors is known to all ranks, and ends on every
// route.
#include <gtest/gtest.h>

#include <cmath>

#include "gpu/gpu_ranks.h"
#include "support/says.h"

namespace altorch {
namespace {

using namespace std::chrono_literals;  // NOLINT
using Clock = std::chrono::steady_clock;
using staged::operation_of;

constexpr std::int64_t kFailingSmall = 100, kFailingLarge = 140'000;

Operation all_reduce(std::vector<float>& x) {
  return operation_of(OpKind::kAllReduce, x.data(), x.data(), static_cast<std::int64_t>(x.size()));
}
Operation broadcast(std::vector<float>& x) {
  return operation_of(OpKind::kBroadcast, nullptr, x.data(), static_cast<std::int64_t>(x.size()), 1);
}

TEST(GpuRoutesFailures, ARouteThatOneRankCannotOpenIsPassedOverByAll) {
  auto places = own_gpus(3);
  places[1].cannot_pin_shared = "GPU 0 cannot use shared memory";
  GpuWorld world(places);
  world.run([](GpuRank& me) {
    std::vector<float> x(kFailingSmall, 1.0f);
    EXPECT_EQ(me.call(all_reduce(x)), "nccl");
    EXPECT_EQ(me.call(all_reduce(x)), "nccl");
    me.finish();
    EXPECT_EQ(x, std::vector<float>(kFailingSmall, 9.0f));
  });
  for (Surroundings& place : places) place.gpu = "the gpu";
  GpuWorld shared(places);
  shared.run([](GpuRank& me) {
    std::vector<float> x(kFailingLarge, 1.0f);
    EXPECT_EQ(me.call(all_reduce(x)), "host_relay");
    me.finish();
    EXPECT_EQ(x, std::vector<float>(kFailingLarge, 3.0f));
  });
}

// Found out in the middle of opening the route.
TEST(GpuRoutesFailures, FallBackTogetherWhereMemoryCannotBePinned) {
  auto places = own_gpus(3);
  for (Surroundings& place : places) place.cannot_export = "";
  places[1].cannot_pin_shared = "GPU 0 cannot use shared memory";
  GpuWorld world(places);
  const auto began = std::chrono::steady_clock::now();
  world.run([](GpuRank& me) {
    std::vector<float> x(kFailingSmall, 1.0f);
    EXPECT_EQ(me.call(all_reduce(x)), "nccl");
    me.finish();
    EXPECT_EQ(x, std::vector<float>(kFailingSmall, 3.0f));
  });
  EXPECT_LT(std::chrono::steady_clock::now() - began, std::chrono::seconds(10));  // of 20
}

// One rank that cannot map the others' memory: all take the next route.
TEST(GpuRoutesFailures, FallBackTogetherWhereMemoryCannotBeMapped) {
  auto places = own_gpus(3);
  for (Surroundings& place : places) place.cannot_export = "";
  places[1].cannot_map = "GPU 1 cannot reach the memory of the other GPU";
  GpuWorld world(places);
  world.run([](GpuRank& me) {
    std::vector<float> x(kFailingSmall, 1.0f);
    EXPECT_EQ(me.call(all_reduce(x)), "host_staged");
    me.finish();
    EXPECT_EQ(x, std::vector<float>(kFailingSmall, 3.0f));
  });
}

TEST(GpuRoutesFailures, SayOfEachRouteWhyItDoesNotServe) {
  auto places = own_gpus(2);
  places[0].has_nccl = false;
  places[1].unsupported_reason = "GPU 3 is too old";
  GpuWorld world(places);
  const auto errors = world.try_to([](GpuRank& me) {
    std::vector<float> x(kFailingSmall);
    me.call(all_reduce(x));
  });
  for (const std::string& error : errors)
    EXPECT_EQ(
        error,
        "unsupported: no route can carry it between GPUs (nccl: on rank 0 NCCL cannot be loaded: the fake is "
        "hidden; peer: on rank 0 its memory is not exported in this test; host_staged: on rank 1 GPU 3 is "
        "too old; hierarchical: on rank 1 GPU 3 is too old; host_relay: on rank 1 GPU 3 is too old); use "
        ".cpu()");
}

// The peers, which wait in NCCL, have to learn of it.
TEST(GpuRoutesFailures, AnErrorOfOneRankInOpeningEndsTheWaitOfTheOthers) {
  GpuWorld world(own_gpus(2));
  world.nccl().fail("ncclCommInitRankConfig", 1);
  const auto began = Clock::now();
  const auto errors = world.try_to([](GpuRank& me) {
    std::vector<float> x(kFailingLarge);
    me.choose_or_abort(all_reduce(x));
  });
  EXPECT_TRUE(says(errors[1], "ncclCommInitRankConfig failed: internal error")) << errors[1];
  EXPECT_TRUE(says(errors[0], "rank 1")) << errors[0];
  EXPECT_TRUE(says(errors[0], "ncclCommInitRankConfig failed")) << errors[0];
  EXPECT_LT(Clock::now() - began, 15s);
}

// Rank 2 calls last and sees the mismatch. Ranks 0 and 1 hear of it, and take no more calls either.
TEST(GpuRoutesFailures, CallsThatDifferAreRefusedByAllRanks) {
  for (const std::int64_t count : {kFailingSmall, kFailingLarge}) {
    GpuWorld world(own_gpus(3));
    std::atomic<int> calls{0}, done{0};
    const auto errors = world.try_to(
        [&](GpuRank& me) {
          std::vector<float> x(static_cast<std::size_t>(count), 1.0f);
          me.call(all_reduce(x));
          me.finish();
          std::vector<float> y(static_cast<std::size_t>(count + (me.rank == 2 ? 1 : 0)), 1.0f);
          ErrorKind kind = ErrorKind::kInternal;
          std::string text;
          try {
            wait_until([&] { return me.rank != 2 || calls == 2; });
            me.call(all_reduce(y));
            ++calls;
            wait_until([&] { return me.routes.failure().has_value(); });
            me.call(all_reduce(x));
          } catch (const Error& error) {
            kind = error.kind();
            text = error.what();
          }
          EXPECT_EQ(kind, me.rank == 2 ? ErrorKind::kMismatch : ErrorKind::kTransport);
          EXPECT_TRUE(says(text, "all_reduce(SUM) of " + std::to_string(count) + " float32")) << text;
          EXPECT_TRUE(says(text, "rank 2 all_reduce(SUM) of " + std::to_string(count + 1))) << text;
          // No rank lets its stream go on before all ranks have looked: all of them know at once
          // what the boards say.
          ++done;
          wait_until([&] { return done == 3; });
          me.routes.mark_results();
          me.routes.abort(text);
          me.finish();
          for (const float value : y) ASSERT_TRUE(me.rank == 2 ? value == 1.0f : std::isnan(value));
        },
        /*aborts=*/true);
    EXPECT_EQ(errors, all_good(3));
    EXPECT_EQ(world.nccl().misuse(), std::vector<std::string>());
  }
}

// Rank 1 makes the routes, and does not call again.
TEST(GpuRoutesFailures, AnAbortEndsWhatHangsOnEveryRoute) {
  const RouteSetting setting("broadcast=host_relay");
  for (const bool one_stream : {true, false}) {
    GpuWorld world(own_gpus(2));
    std::atomic<bool> over{false};
    const auto errors = world.try_to(
        [&](GpuRank& me) {
          // As small as can be: kernels of the fake device look seldom whether they are to give up.
          std::vector<float> small(2, 1.0f), large(kFailingLarge, 1.0f), moved(2, 1.0f);
          EXPECT_EQ(me.call(all_reduce(small)), "host_staged");
          EXPECT_EQ(me.call(all_reduce(large)), "nccl");
          EXPECT_EQ(me.call(broadcast(moved)), "host_relay");
          me.finish();
          EXPECT_FALSE(me.routes.failure());
          if (me.rank == 1) {
            wait_until([&] { return over.load(); });
            const auto failure = me.routes.failure();
            ASSERT_TRUE(failure);
            EXPECT_STREQ(failure->what(), "aborted by the test");
            EXPECT_THROW(me.call(all_reduce(small)), Error);
            return;
          }
          const Stream second = one_stream ? me.stream : me.device.make_stream(),
                       third = one_stream ? me.stream : me.device.make_stream();
          me.call(all_reduce(small));
          me.call(all_reduce(large), second);
          me.call(broadcast(moved), third);
          std::this_thread::sleep_for(20ms);
          EXPECT_FALSE(me.routes.failure());
          EXPECT_EQ(me.routes.mark_results(), std::nullopt);
          // NCCL comes last: it waits for the device, which the others hold up.
          me.routes.abort("aborted by the test");
          // At once, but on a machine so busy that NCCL was left behind in it: rank 1 has the other
          // one.
          wait_until([&] { return world.nccl().open_communicators() == 1; });
          for (const Stream stream : {me.stream, second, third}) ASSERT_TRUE(me.device.synchronize(stream));
          for (const auto* result : {&small, &large, &moved}) {
            for (const float value : *result) ASSERT_TRUE(std::isnan(value));
          }
          over = true;
          EXPECT_TRUE(me.routes.failure());
          EXPECT_THROW(me.call(all_reduce(small)), Error);
          EXPECT_EQ(me.routes.nccl_communicator()->handle(), nullptr);
        },
        /*aborts=*/true);
    over = true;
    EXPECT_EQ(errors, all_good(2)) << one_stream;
    EXPECT_EQ(world.nccl().calls("ncclCommAbort"), 1);
    EXPECT_EQ(world.nccl().misuse(), std::vector<std::string>());
  }
}

// NCCL itself tells no peer, and it is all that the ranks have opened.
TEST(GpuRoutesFailures, AnAbortIsKnownToAllRanksOfANode) {
  GpuWorld world(own_gpus(2));
  std::atomic<bool> aborted{false};
  const auto errors = world.try_to([&](GpuRank& me) {
    std::vector<float> x(kFailingLarge, 1.0f);
    EXPECT_EQ(me.call(all_reduce(x)), "nccl");
    me.finish();
    if (me.rank == 0) {
      me.routes.abort("aborted by the test");
      aborted = true;
    }
    wait_until([&] { return aborted.load(); });
    const auto failure = me.routes.failure();
    ASSERT_TRUE(failure);
    EXPECT_STREQ(failure->what(), "aborted by the test");
    EXPECT_THROW(me.call(all_reduce(x)), Error);
  });
  EXPECT_EQ(errors, all_good(2));
}

TEST(GpuRoutesFailures, WhatNcclFindsOutIsTold) {
  GpuWorld world(own_gpus(2));
  world.run([&](GpuRank& me) {
    std::vector<float> x(kFailingLarge, 1.0f);
    me.call(all_reduce(x));
    me.finish();
    EXPECT_FALSE(me.routes.failure());
    if (me.rank == 0) return;
    world.nccl().report_error(1);
    const auto failure = me.routes.failure();
    ASSERT_TRUE(failure);
    EXPECT_TRUE(says(failure->what(), "NCCL: remote process exited")) << failure->what();
  });
}

TEST(GpuRoutesFailures, WhatTheHostFindsOutIsTold) {
  const RouteSetting setting("cuda=host_relay");
  GpuWorld world(own_gpus(2));
  std::atomic<bool> over{false};
  const auto errors = world.try_to(
      [&](GpuRank& me) {
        std::vector<float> x(kFailingSmall, 1.0f);
        me.call(all_reduce(x));
        me.finish();
        if (me.rank == 1) return wait_until([&] { return over.load(); });
        Operation late = all_reduce(x);
        late.timeout = 300ms;
        me.call(late);
        wait_until([&] { return me.routes.failure().has_value(); });
        EXPECT_EQ(me.routes.failure()->kind(), ErrorKind::kTimeout);
        me.finish();
        for (const float value : x) ASSERT_TRUE(std::isnan(value));
        over = true;
      },
      /*aborts=*/true);
  over = true;
  EXPECT_EQ(errors, all_good(2));
}

TEST(GpuRoutesFailures, ARankWithoutKernelsSaysThatItCannotMark) {
  auto places = own_gpus(2);
  places[1].kernel_unsupported_reason = "there is no NVRTC";
  GpuWorld world(places);
  world.run([](GpuRank& me) {
    std::vector<float> x(kFailingSmall, 1.0f);
    EXPECT_EQ(me.call(all_reduce(x)), "nccl");
    EXPECT_EQ(me.routes.mark_results().value_or(""), me.rank == 1 ? "there is no NVRTC" : "");
    me.finish();
  });
}

// The carrier's store checks no peer: in it, rank 0 would wait for its whole timeout, and not read
// why.
TEST(GpuRoutesFailures, ARankWithoutPinnedMemoryEndsTheWaitOfTheOthers) {
  auto places = shared_gpu(2);
  places[1].pinned_limit = 1000;
  GpuWorld world(places);
  const auto began = Clock::now();
  const auto errors = world.try_to([](GpuRank& me) {
    std::vector<float> x(kFailingSmall, 1.0f);
    me.choose_or_abort(all_reduce(x));
  });
  EXPECT_TRUE(says(errors[1], "no more pinned memory")) << errors[1];
  EXPECT_TRUE(says(errors[0], "no more pinned memory")) << errors[0];
  EXPECT_LT(Clock::now() - began, 15s);
}

}  // namespace
}  // namespace altorch
