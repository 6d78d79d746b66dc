// SPDX-License-Identifier: BSD-3-Clause
#include "gpu/device_calls.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include "gpu/host_staged/conformance.h"
#include "gpu/host_staged/host_relay.h"
#include "support/says.h"
#include "trace/job_watch.h"

namespace altorch {
namespace {

using namespace std::chrono_literals;  // NOLINT

// Says of itself what a test wants, and notes down what is asked of it.
struct FakeCarrier : DeviceCarrier {
  std::optional<Error> failure() override { return failed; }
  std::optional<std::string> mark_results() override {
    asked.push_back("mark");
    return cannot_mark;
  }
  void abort(const std::string&) override { asked.push_back("abort"); }
  void end_replays(const std::string&) override { asked.push_back("end replays"); }

  std::optional<Error> failed;
  std::optional<std::string> cannot_mark;
  std::vector<std::string> asked;
};

// A rank alone: what its calls wait for is the test's affair.
struct Alone {
  explicit Alone(OnError on_error = OnError::kPoison)
      : calls(groups[0], groups[0].watchdog(), carrier, on_error,
              [this] { carrier.asked.push_back("tell"); }) {}

  Operation operation(std::chrono::milliseconds timeout) {
    Operation made = staged::operation_of(OpKind::kAllReduce, nullptr, nullptr, 10);
    made.sequence = groups[0].next_sequence(made.device);
    made.timeout = timeout;
    return made;
  }
  void give(std::chrono::milliseconds timeout) {
    calls.enter(operation(timeout));
    calls.entered();
  }
  // The failure, once there is one; nothing after `most`.
  std::optional<Error> look_for(std::chrono::milliseconds most) {
    const auto end = std::chrono::steady_clock::now() + most;
    while (!calls.failure() && std::chrono::steady_clock::now() < end) {
      calls.look();
      std::this_thread::sleep_for(10ms);
    }
    return calls.failure();
  }

  ThreadGroup groups{1};
  FakeCarrier carrier;
  DeviceCalls calls;
};

using Asked = std::vector<std::string>;

TEST(DeviceCalls, TellsAndMarksBeforeAnythingGoesOn) {
  Alone me;
  EXPECT_FALSE(me.calls.look());  // nothing is under way
  me.give(10s);
  EXPECT_TRUE(me.calls.look());
  me.carrier.failed = Error(ErrorKind::kTransport, "a link is down");
  EXPECT_TRUE(me.calls.look());
  EXPECT_EQ(me.carrier.asked, (Asked{"tell", "mark", "abort"}));
  ASSERT_TRUE(me.calls.failure());
  EXPECT_STREQ(me.calls.failure()->what(),
               "altorch: group 'test', rank 0: all_reduce #1 (CUDA): a link is down");
  EXPECT_THROW(me.calls.throw_if_failed(), Error);
  EXPECT_THROW(me.groups[0].check_open(), Error);
  EXPECT_TRUE(me.calls.look());  // for as long as something is under way, what hangs is ended again
  EXPECT_EQ(me.carrier.asked, (Asked{"tell", "mark", "abort", "mark", "abort"}));
  me.calls.all_done();
  EXPECT_FALSE(me.calls.look());
}

// A store whose answers the test holds back, once `held` is set.
struct HeldStore : MapStore {
  void set(const std::string& key, const std::string& value) override {
    hold();
    MapStore::set(key, value);
  }
  std::optional<std::string> try_get(const std::string& key) override {
    hold();
    ++reads;
    return MapStore::try_get(key);
  }
  void hold() {
    if (held) asked = true;
    const auto end = std::chrono::steady_clock::now() + 20s;  // so that a test fails, and does not hang
    while (held && std::chrono::steady_clock::now() < end) std::this_thread::sleep_for(1ms);
  }
  std::atomic<bool> held{false}, asked{false};
  std::atomic<int> reads{0};
};

// Rank 0; no rank 1 runs.
struct FirstOfTwo {
  std::shared_ptr<HeldStore> store = std::make_shared<HeldStore>();
  Group group{{"test", {0, 1}, store, nullptr}, 0, 2};
  Watchdog watchdog{group};
  FakeCarrier carrier = {};
  DeviceCalls calls{group, watchdog, carrier, OnError::kPoison, [] {}};
  Operation operation = staged::operation_of(OpKind::kAllReduce, nullptr, nullptr, 10);
};

TEST(DeviceCalls, LaunchesDoNotWaitForTheStore) {
  FirstOfTwo me;
  auto& [store, group, watchdog, carrier, calls, operation] = me;
  const auto give = [&] {
    operation.sequence = group.next_sequence(operation.device);
    operation.timeout = 1min;
    calls.enter(operation);
    calls.entered();
  };
  give();
  store->held = true;
  std::atomic<bool> over{false};
  std::thread watch([&] {
    for (; !over; std::this_thread::sleep_for(10ms)) calls.look();
  });
  while (!store->asked) std::this_thread::sleep_for(1ms);  // the call has stalled: ranks compare theirs
  const auto began = std::chrono::steady_clock::now();
  give();
  EXPECT_LT(std::chrono::steady_clock::now() - began, 10s);
  EXPECT_EQ(calls.done_up_to(1), 2u);
  EXPECT_FALSE(calls.failure());
  calls.all_done();
  store->held = false;
  over = true;
  watch.join();
  EXPECT_FALSE(calls.look());
  EXPECT_EQ(carrier.asked, Asked());
}

// It must be told as that of a call: end_replays() tells no waiter.
TEST(DeviceCalls, TellsTheFailureOfACallThatBeganWhileGraphsWereLookedAfter) {
  auto store = std::make_shared<HeldStore>();
  store->set("deaths", "1");
  store->set("death/1", "1");
  LivenessSettings settings;
  settings.store = store;
  settings.members = {{0, ProcessId::own()}, {1, {"another-host/p", 77}}};
  settings.address = settings.master = "127.0.0.1";
  Group group({"test", {0, 1}, store, std::make_shared<JobWatch>("test", settings)}, 0, 2);
  Watchdog watchdog(group);
  FakeCarrier carrier;
  DeviceCalls calls(group, watchdog, carrier, OnError::kPoison, [&] { carrier.asked.push_back("tell"); });
  Operation operation = staged::operation_of(OpKind::kAllReduce, nullptr, nullptr, 10);
  operation.timeout = 1min;
  operation.sequence = group.next_sequence(operation.device);
  calls.enter(operation);
  calls.captured();
  calls.all_done();
  for (store->reads = 0; store->reads == 0; std::this_thread::sleep_for(10ms)) EXPECT_TRUE(calls.look());
  EXPECT_FALSE(calls.failure()) << "the death was seen once";
  store->held = true;
  std::thread watch([&] {
    for (; !calls.failure(); std::this_thread::sleep_for(10ms)) calls.look();
  });
  while (!store->asked) std::this_thread::sleep_for(1ms);
  operation.sequence = group.next_sequence(operation.device);
  calls.enter(operation);
  calls.entered();
  store->held = false;
  watch.join();
  EXPECT_EQ(calls.failure()->kind(), ErrorKind::kPeerLost) << calls.failure()->what();
  EXPECT_EQ(carrier.asked, (Asked{"tell", "mark", "abort"}));
}

// No call announces the replay of a graph.
// DeviceCalls ends what a replay would hang in while no call is under way.
TEST(DeviceCalls, LooksAfterWhatGraphsReplay) {
  Alone me;
  me.calls.enter(me.operation(10s));
  me.calls.captured();
  me.calls.all_done();
  EXPECT_TRUE(me.calls.look());
  EXPECT_EQ(me.carrier.asked, Asked());
  me.carrier.failed = Error(ErrorKind::kTransport, "a peer is gone");
  EXPECT_TRUE(me.calls.look());
  EXPECT_EQ(me.carrier.asked, Asked{"end replays"});
  EXPECT_THROW(me.calls.throw_if_failed(), Error);
  EXPECT_FALSE(me.calls.look());
}

// It may know which message of the call it was; the peers read the cause under one label.
TEST(DeviceCalls, KeepsTheWordsOfWhatCarriedTheCall) {
  Alone me;
  me.give(10s);
  me.give(10s);
  me.carrier.failed = Error(ErrorKind::kTimeout, "not done").with_label("altorch: send to rank 2, tag 5: ");
  EXPECT_TRUE(me.calls.look());
  EXPECT_STREQ(me.calls.failure()->what(), "altorch: send to rank 2, tag 5: not done");
  EXPECT_STREQ(me.groups[0].failure()->what(),
               "altorch: group 'test', rank 0: all_reduce #1 (CUDA): not done");
}

// It may have refused the call, and ended: that it is lost says less.
TEST(DeviceCalls, PrefersAPeersReasonToItsDeath) {
  Alone me;
  me.groups[0].store().set("board/closed", "1 " + std::to_string(static_cast<int>(ErrorKind::kMismatch)) +
                                               " all_reduce #1: they differ");
  me.give(10s);
  me.carrier.failed = Error(ErrorKind::kPeerLost, "global rank 0 is lost: it has ended");
  EXPECT_TRUE(me.calls.look());
  ASSERT_TRUE(me.calls.failure());
  EXPECT_NE(std::string(me.calls.failure()->what()).find("aborted all_reduce #1: they differ"),
            std::string::npos)
      << me.calls.failure()->what();
}

// What carried it names no rank. Launches go on while the peers' reason is looked for.
TEST(DeviceCalls, LooksForAPeersReasonWhereNoRankIsNamed) {
  FirstOfTwo me;
  auto& [store, group, watchdog, carrier, calls, operation] = me;
  operation.sequence = 1;
  calls.enter(operation);
  calls.entered();
  carrier.failed = Error(ErrorKind::kTransport, "NCCL: a connection was closed");
  store->held = true;
  std::thread looks([&] { calls.look(); });
  while (!store->asked) std::this_thread::yield();
  calls.enter(operation);
  calls.entered();
  store->held = false;
  group.store().set("board/closed", "1 " + std::to_string(static_cast<int>(ErrorKind::kMismatch)) +
                                        " all_reduce #1: they differ");
  looks.join();
  ASSERT_TRUE(calls.failure());
  EXPECT_TRUE(says(calls.failure()->what(), "rank 1 of the group aborted all_reduce #1: they differ"))
      << calls.failure()->what();
}

TEST(DeviceCalls, MarksNothingWhereThatIsAskedFor) {
  Alone me(OnError::kContinue);
  me.give(100ms);
  ASSERT_TRUE(me.look_for(10s));
  me.calls.look();
  EXPECT_EQ(me.carrier.asked, (Asked{"tell", "abort", "abort"}));
}

// Afterwards no thread is left that could take a wrong result for a right one.
TEST(DeviceCalls, EndsTheProcessWhereResultsCannotBeMarked) {
  for (const bool asked_for : {false, true}) {
    const pid_t child = fork();
    if (child == 0) {
      Alone me(asked_for ? OnError::kTeardown : OnError::kPoison);
      if (!asked_for) me.carrier.cannot_mark = "there are no kernels";
      me.carrier.failed = Error(ErrorKind::kTransport, "a link is down");
      me.give(10s);
      me.calls.look();
      _exit(0);
    }
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_TRUE(WIFEXITED(status));
    EXPECT_EQ(WEXITSTATUS(status), 1);
  }
}

TEST(DeviceCalls, CountsTheTimeOfEachCallFromItsOwnIssue) {
  Alone me;
  me.give(300ms);
  me.give(20s);
  EXPECT_EQ(me.calls.done_up_to(1), std::optional<std::uint64_t>(2));
  EXPECT_FALSE(me.look_for(600ms));
  EXPECT_EQ(me.calls.done_up_to(2), std::nullopt);
  me.calls.all_done();
  EXPECT_TRUE(me.calls.idle());
  // It is the second that is late, whether or not the device has come to it.
  me.give(20s);
  me.give(400ms);
  const auto began = std::chrono::steady_clock::now();
  EXPECT_FALSE(me.look_for(250ms));
  EXPECT_EQ(me.calls.done_up_to(3), std::optional<std::uint64_t>(4));
  const auto failure = me.look_for(10s);
  EXPECT_LT(std::chrono::steady_clock::now() - began, 5s);
  ASSERT_TRUE(failure);
  EXPECT_EQ(failure->kind(), ErrorKind::kTimeout);
  EXPECT_NE(std::string(failure->what())
                .find("all_reduce #4 (CUDA): timed out, not done after its timeout of 0.4 s"),
            std::string::npos)
      << failure->what();
}

TEST(DeviceCalls, DoesNotWaitForTheDeadlineOfTheCallBefore) {
  Alone me;
  me.give(20s);
  me.give(200ms);
  me.give(20s);
  const auto failure = me.look_for(10s);
  ASSERT_TRUE(failure);
  EXPECT_NE(std::string(failure->what())
                .find("all_reduce #2 (CUDA): timed out, not done after its timeout of 0.2 s"),
            std::string::npos)
      << failure->what();
}

TEST(DeviceCalls, SuspectsTheCallThatHoldsUpTheHost) {
  Alone me;
  me.give(20s);
  me.calls.enter(me.operation(100ms));  // and the route does not come back
  const auto failure = me.look_for(10s);
  ASSERT_TRUE(failure);
  EXPECT_NE(std::string(failure->what()).find("all_reduce #2"), std::string::npos) << failure->what();
}

TEST(DeviceCalls, TellsWhichItHasNotSeenTheEndOf) {
  Alone me;
  for (std::uint64_t number = 5; number <= 7; ++number) {
    Operation operation = me.operation(20s);
    operation.number = number;
    me.calls.enter(operation);
    me.calls.entered();
  }
  EXPECT_EQ(me.calls.under_way(), (std::vector<std::uint64_t>{5, 6, 7}));
  me.calls.done_up_to(2);
  EXPECT_EQ(me.calls.under_way(), std::vector<std::uint64_t>{7});
  me.calls.all_done();
  EXPECT_TRUE(me.calls.under_way().empty());
}

TEST(DeviceCalls, ForgetsWhatARouteDidNotTake) {
  Alone me;
  me.calls.enter(me.operation(100ms));
  me.calls.withdraw();
  EXPECT_FALSE(me.look_for(300ms));
  me.give(20s);
  EXPECT_EQ(me.calls.done_up_to(0), std::optional<std::uint64_t>(1));
}

TEST(DeviceCalls, ADeviceThatIsLostFailsTheLastCall) {
  Alone me;
  me.give(20s);
  me.calls.device_failed("CUDA error: an illegal memory access was encountered");
  const auto failure = me.look_for(10s);
  ASSERT_TRUE(failure);
  EXPECT_EQ(failure->kind(), ErrorKind::kTransport);
  EXPECT_NE(std::string(failure->what()).find("all_reduce #1 (CUDA): CUDA error"), std::string::npos);
}

TEST(DeviceCalls, AnAbortEndsThemOnThisRankAlone) {
  Alone me;
  me.give(20s);
  me.calls.abort("shut down by the user");
  EXPECT_EQ(me.carrier.asked, (Asked{"tell", "mark", "abort"}));
  EXPECT_EQ(me.calls.failure()->kind(), ErrorKind::kClosed);
  me.groups[0].check_open();  // the group's own affair
  Alone other;
  other.give(20s);
  other.calls.end(Error(ErrorKind::kClosed, "the group was destroyed"));
  EXPECT_EQ(other.carrier.asked, Asked{});
  other.calls.release();
  EXPECT_EQ(other.carrier.asked, (Asked{"mark", "abort"}));
}

struct RouteCarrier : DeviceCarrier {
  explicit RouteCarrier(GpuRoute& wrapped) : route(wrapped) {}
  std::optional<Error> failure() override { return route.failure(); }
  std::optional<std::string> mark_results() override { return std::nullopt; }  // the route does it
  void abort(const std::string& why) override { route.abort(why); }
  void end_replays(const std::string& why) override { abort(why); }
  GpuRoute& route;
};

// The whole way, on a device: a peer that never calls, or that calls something else. The stream
// goes on, what it leaves says so, and the peer hears of it.
TEST(DeviceCalls, OnADeviceNothingHealthyIsLeft) {
  for (const bool peer_calls : {false, true}) {
    ThreadGroup groups(2), carriers(2);
    std::atomic<int> done{0};
    const auto errors = groups.run([&](int number, Communicator& group) {
      const HostRelayOptions kOptions{.pinned_bytes = 1 << 20, .slots = 2, .timeout = 20s};
      staged::Rank me = staged::make_rank(
          [&](std::unique_ptr<Device> device, Communicator& carrier) {
            return std::make_unique<HostRelay>(std::move(device), carrier.shared_from_this(), kOptions);
          },
          carriers[number], {.seed = static_cast<unsigned>(number + 1), .aborts = true});
      RouteCarrier carrier(*me.route);
      DeviceCalls calls(group, group.watchdog(), carrier, OnError::kPoison, [] {});
      std::vector<float> x(1000, 1.0f);
      Operation operation = staged::operation_of(number == 0 ? OpKind::kAllReduce : OpKind::kBroadcast,
                                                 x.data(), x.data(), 1000);
      operation.sequence = group.next_sequence(operation.device);
      operation.timeout = peer_calls ? 20s : 1500ms;
      if (number == 0 || peer_calls) {
        group.append_to_history(operation);
        group.started(operation);
        calls.enter(operation);
        me.enqueue(operation);
        calls.entered();
        while (!calls.failure()) {
          calls.look();
          std::this_thread::sleep_for(10ms);
        }
        me.finish();
        const bool has_result = operation.kind == OpKind::kAllReduce || operation.root != number;
        for (const float value : x) ASSERT_EQ(std::isnan(value), has_result);
        EXPECT_EQ(calls.failure()->kind(), peer_calls ? ErrorKind::kMismatch : ErrorKind::kTimeout)
            << calls.failure()->what();
      }
      ++done;
      while (done < 2) std::this_thread::sleep_for(1ms);  // the other's route needs this one's group
      if (number == 1 && !peer_calls) {
        const auto told = group.board().closed();
        ASSERT_TRUE(told);
        EXPECT_NE(std::string(told->aborted->what())
                      .find("rank 0 of the group aborted all_reduce #1 (CUDA): timed out, not done after"),
                  std::string::npos)
            << told->aborted->what();
      }
    });
    EXPECT_EQ(errors, std::vector<std::string>(2));
  }
}

}  // namespace
}  // namespace altorch
