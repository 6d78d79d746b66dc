// SPDX-License-Identifier: BSD-3-Clause
// A communicator's life: made, split, told of buffers, failing, aborted, ended.
#include "gpu/nccl/nccl_comm.h"

#include <cstdlib>

#include "gpu/nccl/nccl_ranks.h"

namespace altorch::nccl {
namespace {

using Clock = std::chrono::steady_clock;
using namespace std::chrono_literals;  // NOLINT

constexpr int kOldest = 21805, kWithBuffers = 21903, kNewestVersion = 22809;
const std::vector<std::string> kNone;

struct EnvSetting {
  EnvSetting(const char* name, const char* value) : name_(name) { setenv(name, value, 1); }
  ~EnvSetting() { unsetenv(name_); }

 private:
  const char* const name_;
};

TEST(NcclComm, IsMadeWithWhatTheUserSaid) {
  FakeNccl fake;
  const Knobs knobs{.min_ctas = 3, .max_ctas = 7, .cga_cluster_size = 2, .split_share = 1};
  const auto made_with = [&] {
    const Config config = fake.last_config();
    EXPECT_EQ(config.blocking, 1);
    return std::vector<int>{config.min_ctas, config.max_ctas, config.cga_cluster_size, config.split_share};
  };
  EXPECT_EQ(try_on_ranks(
                2, [](NcclRank&) {}, false, knobs),
            (std::vector<std::string>{"", ""}));
  EXPECT_EQ(made_with(), (std::vector<int>{3, 7, 2, 1}));
  on_ranks(fake, 1, [](NcclRank&) {});
  EXPECT_EQ(made_with(), std::vector<int>(4, Config::kUndefined));
}

TEST(NcclComm, SplitsByColor) {
  FakeNccl fake;
  on_ranks(fake, 5, [&](NcclRank& me) {
    // 0 and 3 in reverse order, 1 and 2, no rank with 4.
    constexpr int kColors[] = {6, 9, 9, 6, kNoColor}, kKeys[] = {1, 0, 1, 0, 0};
    auto part = me.comm->split(kColors[me.rank], kKeys[me.rank], 0, 2, kEnough, {});
    if (me.rank == 4) {
      EXPECT_EQ(part, nullptr);
      return;
    }
    ASSERT_NE(part, nullptr);
    std::vector<float> own(3, static_cast<float>(me.rank)), all(6);
    const Call gather = call_of(OpKind::kAllGather, DType::kFloat32, own.data(), all.data(), 3);
    part->enqueue({&gather, 1}, me.stream);
    // Both ways of scatter look at the rank that the part has.
    std::vector<float> blocks = {10, 20}, block(1);
    const Call scatter = call_of(OpKind::kScatter, DType::kFloat32, blocks.data(), block.data(), 1, 1);
    part->enqueue({&scatter, 1}, me.stream);
    me.finish();
    const float first = me.rank == 0 || me.rank == 3 ? 3 : 1, second = me.rank == 0 || me.rank == 3 ? 0 : 2;
    EXPECT_EQ(all, (std::vector<float>{first, first, first, second, second, second}));
    EXPECT_EQ(block[0], kKeys[me.rank] == 0 ? 10 : 20);
  });
}

TEST(NcclComm, TellsNcclOfBuffers) {
  FakeNccl fake(kNewestVersion);
  on_ranks(fake, 2, [&](NcclRank& me) {
    std::vector<float> plain(10), symmetric(10);
    me.comm->add_buffer(plain.data(), 40, /*symmetric=*/false);
    me.comm->add_buffer(symmetric.data(), 40, /*symmetric=*/true);
    me.comm->remove_buffer(symmetric.data());
    me.comm->remove_buffer(plain.data());
    me.comm->remove_buffer(plain.data());  // it is none any more
    EXPECT_EQ(error_of([&] { me.comm->remove_buffer(&me); }), "");
  });
  for (const char* name :
       {"ncclCommRegister", "ncclCommDeregister", "ncclCommWindowRegister", "ncclCommWindowDeregister"})
    EXPECT_EQ(fake.calls(name), 2) << name;
}

TEST(NcclComm, SaysWhatAnOldVersionLacks) {
  for (const int version : {kOldest, kWithBuffers, kNewestVersion}) {
    FakeNccl fake(version);
    on_ranks(fake, 1, [&](NcclRank& me) {
      float buffer = 0;
      const auto add = [&](bool symmetric) {
        return error_of([&] { me.comm->add_buffer(&buffer, sizeof buffer, symmetric); });
      };
      const std::string plain = add(false), symmetric = add(true);
      EXPECT_EQ(plain,
                version == kOldest ? "unsupported: NCCL 2.18.5 cannot register buffers (2.19 can)" : "");
      EXPECT_EQ(symmetric, version == kNewestVersion ? ""
                                                     : "unsupported: NCCL " + library().version_text() +
                                                           " cannot register symmetric memory (2.27 can)");
    });
    EXPECT_EQ(allocator_unsupported_reason(),
              version == kOldest ? "NCCL 2.18.5 has no ncclMemAlloc (2.19 has)" : "");
  }
}

TEST(NcclComm, SaysWhichCallFailedAndWhy) {
  struct Case {
    const char* call;
    OpKind kind;
    ReduceOp op = ReduceOp::kSum;
  };
  for (const Case& each :
       {Case{"ncclAllReduce", OpKind::kAllReduce}, Case{"ncclReduce", OpKind::kReduce},
        Case{"ncclBroadcast", OpKind::kBroadcast}, Case{"ncclAllGather", OpKind::kAllGather},
        Case{"ncclReduceScatter", OpKind::kReduceScatter}, Case{"ncclAlltoAll", OpKind::kAllToAll},
        Case{"ncclSend", OpKind::kGather}, Case{"ncclRecv", OpKind::kScatter},
        Case{"ncclGroupEnd", OpKind::kGather},
        Case{"ncclRedOpCreatePreMulSum", OpKind::kAllReduce, ReduceOp::kPremulSum}}) {
    FakeNccl fake;
    on_ranks(fake, 1, [&](NcclRank& me) {
      std::vector<float> x(3, 1.0f), y(3, 9.0f);
      Call call = call_of(each.kind, DType::kFloat32, x.data(), y.data(), 3);
      call.op = each.op;
      fake.fail(each.call, 0);
      const std::string text = error_of([&] { me.enqueue(call); });
      EXPECT_EQ(text, std::string("transport failure: ") + each.call +
                          " failed: internal error (the fake says so); NCCL_DEBUG=INFO shows more");
      me.finish();
      EXPECT_EQ(y, std::vector<float>(3, 9.0f)) << "nothing of it has begun";
      // No group was left open: the next call is carried out.
      me.enqueue(sum_of(x));
      me.finish();
      EXPECT_EQ(fake.calls("ncclGroupStart"), fake.calls("ncclGroupEnd"));
    });
  }
}

TEST(NcclComm, IsNotMadeWhereACallFails) {
  FakeNccl fake;
  fake.fail("ncclGetUniqueId");
  EXPECT_TRUE(says(try_on_ranks(1, [](NcclRank&) {})[0], "ncclGetUniqueId failed: internal error"));
  fake.fail("ncclCommInitRankConfig");
  EXPECT_TRUE(says(try_on_ranks(1, [](NcclRank&) {})[0], "ncclCommInitRankConfig failed: internal error"));
  on_ranks(fake, 1, [&](NcclRank& me) {
    fake.fail("ncclCommSplit");
    EXPECT_TRUE(says(error_of([&] { me.comm->split(0, 0, 0, 1, kEnough, {}); }), "ncclCommSplit failed"));
    fake.fail("ncclCommWindowRegister");
    EXPECT_TRUE(says(error_of([&] { me.comm->add_buffer(&me, 1, true); }), "ncclCommWindowRegister failed"));
  });
}

TEST(NcclComm, DoesNotWaitWithoutEndForARank) {
  const EnvSetting setting("ALTORCH_BOOTSTRAP_SECONDS", "0");
  FakeNccl fake;
  MapStore store;
  const auto began = Clock::now();
  const auto make = [&](std::chrono::milliseconds timeout, const NcclComm::CheckPeers& check_peers) {
    return error_of([&] { NcclComm(store, "lonely", 0, 0, 2, timeout, {}, check_peers); });
  };
  EXPECT_EQ(make(300ms, {}),
            "timeout: NCCL was not done after 300 ms: some rank of the group cannot be reached; "
            "NCCL_DEBUG=INFO shows more");
  // Who looks after the ranks meanwhile may know better.
  EXPECT_EQ(make(20s, [] { throw Error(ErrorKind::kPeerLost, "rank 1 has died"); }),
            "peer lost: rank 1 has died");
  EXPECT_EQ(error_of([&] { NcclComm(store, "absent", 0, 1, 2, 50ms); }), "timeout: no key absent/id");
  EXPECT_LT(Clock::now() - began, 20s);
}

TEST(NcclComm, TellsOfAnErrorThatComesByItself) {
  FakeNccl fake;
  on_ranks(fake, 2, [&](NcclRank& me) {
    EXPECT_EQ(me.comm->async_error(), std::nullopt);
    if (me.rank == 0) return;
    fake.report_error(1);
    EXPECT_EQ(me.comm->async_error(),
              "NCCL: remote process exited or there was a network error (the fake says so)");
    me.comm->abort();
    EXPECT_EQ(me.comm->async_error(), std::nullopt);
  });
}

// The other rank never calls.
TEST(NcclComm, AnAbortEndsWhatHangsInAStream) {
  FakeNccl fake;
  std::atomic<bool> over{false};
  const auto errors = try_on_ranks(
      2,
      [&](NcclRank& me) {
        while (me.rank == 1 && !over) std::this_thread::sleep_for(1ms);
        if (me.rank == 1) return;
        std::vector<float> x(10, 1.0f), y(10, 1.0f);
        me.enqueue(sum_of(x));
        me.enqueue(call_of(OpKind::kReceive, DType::kFloat32, nullptr, y.data(), 10, 1));
        EXPECT_NE(me.comm->handle(), nullptr);
        std::this_thread::sleep_for(20ms);
        const auto began = Clock::now();
        me.comm->abort();
        me.finish();
        EXPECT_LT(Clock::now() - began, 20s);
        EXPECT_EQ(x, std::vector<float>(10, 1.0f)) << "no result";
        me.comm->abort();  // once is enough
        EXPECT_EQ(fake.calls("ncclCommAbort"), 1);
        EXPECT_EQ(me.comm->handle(), nullptr);
        over = true;
      },
      /*aborts=*/true);
  EXPECT_EQ(errors, std::vector<std::string>(2));
  EXPECT_EQ(fake.misuse(), kNone);
  EXPECT_EQ(fake.open_communicators(), 0);
}

TEST(NcclComm, IsClosedAfterAnAbort) {
  FakeNccl fake;
  on_ranks(fake, 1, [&](NcclRank& me) {
    std::vector<float> x(3);
    me.comm->add_buffer(x.data(), 12, false);
    me.comm->abort();
    const std::string closed =
        "group closed: its NCCL communicator was aborted; destroy the group and make a new one";
    EXPECT_EQ(error_of([&] { me.enqueue(sum_of(x)); }), closed);
    EXPECT_EQ(error_of([&] { me.comm->split(0, 0, 0, 1, kEnough, {}); }), closed);
    EXPECT_EQ(error_of([&] { me.comm->add_buffer(&me, 1, false); }), closed);
    EXPECT_EQ(error_of([&] { me.comm->remove_buffer(x.data()); }), "") << "it went with the communicator";
  });
  EXPECT_EQ(fake.calls("ncclCommFinalize"), 0);
  EXPECT_EQ(fake.calls("ncclCommDeregister"), 0);
}

// NCCL connects with a peer that does not answer.
TEST(NcclComm, AnAbortEndsACallThatHoldsUpTheHost) {
  for (const char* name : {"ncclAllReduce", "ncclGroupEnd"}) {
    FakeNccl fake;
    on_ranks(fake, 1, [&](NcclRank& me) {
      fake.hang(name);
      std::thread other([&] {
        std::this_thread::sleep_for(50ms);
        me.comm->abort();
      });
      std::vector<float> x(3), y(3);
      const std::vector<Call> calls = {sum_of(x), sum_of(y)};
      const auto began = Clock::now();
      const std::string text = error_of([&] { me.comm->enqueue(calls, me.stream); });
      other.join();
      EXPECT_LT(Clock::now() - began, 20s);
      EXPECT_TRUE(says(text, std::string("transport failure: ") + name + " failed: internal error")) << text;
    });
  }
}

TEST(NcclComm, EndsInTwoStepsWhenNothingIsLeft) {
  FakeNccl fake;
  on_ranks(fake, 2, [](NcclRank&) {});
  EXPECT_EQ(fake.calls("ncclCommFinalize"), 2);
  EXPECT_EQ(fake.calls("ncclCommDestroy"), 2);
  EXPECT_EQ(fake.calls("ncclCommAbort"), 0);
  // What cannot be ended well is ended.
  fake.fail("ncclCommFinalize", 0);
  on_ranks(fake, 1, [](NcclRank&) {});
  EXPECT_EQ(fake.calls("ncclCommDestroy"), 2);
  EXPECT_EQ(fake.calls("ncclCommAbort"), 1);
}

// Peers may be gone.
TEST(NcclComm, GoesWhetherOrNotNcclComesBack) {
  for (const char* name : {"ncclCommFinalize", "ncclCommAbort"}) {
    FakeNccl fake;
    const auto began = Clock::now();
    EXPECT_EQ(try_on_ranks(1,
                           [&](NcclRank& me) {
                             fake.hang(name);
                             if (name == std::string("ncclCommAbort")) me.comm->abort();
                           }),
              std::vector<std::string>(1));
    EXPECT_LT(Clock::now() - began, 20s) << name;
    EXPECT_EQ(fake.open_communicators(), 1) << name;
  }
}

}  // namespace
}  // namespace altorch::nccl
