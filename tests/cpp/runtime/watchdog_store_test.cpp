// SPDX-License-Identifier: BSD-3-Clause
#include "runtime/watchdog_store.h"

#include <gtest/gtest.h>

#include <chrono>

#include "rendezvous/store_allgather.h"
#include "runtime/thread_group.h"

namespace altorch {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

std::vector<std::string> come(Communicator& communicator, const Operation& operation,
                              const std::string& key = "here") {
  WatchdogStore store(communicator, operation);
  try {
    return store_allgather(store, key, communicator.rank(), communicator.size(), seconds(20), "with a tensor",
                           std::to_string(communicator.rank()));
  } catch (const Error& error) {  // as the backend does: the peers have to learn of it
    throw communicator.abort_call(operation, error);
  }
}

Operation operation_of(Communicator& communicator, OpKind kind = OpKind::kAllReduce) {
  Operation operation;
  operation.kind = kind;
  operation.timeout = seconds(20);
  if (!operation.is_message()) operation.sequence = communicator.next_sequence();
  return operation;
}

TEST(WatchdogStore, BringsAllRanksTogether) {
  ThreadGroup group(3);
  const auto errors = group.run([&](int, Communicator& communicator) {
    EXPECT_EQ(come(communicator, operation_of(communicator)), (std::vector<std::string>{"0", "1", "2"}));
    EXPECT_EQ(come(communicator, operation_of(communicator, OpKind::kSend), "again").size(), 3u);
  });
  EXPECT_EQ(errors, std::vector<std::string>(3));
}

TEST(WatchdogStore, EndsWithTheOperationsDeadline) {
  ThreadGroup group(2);
  const auto errors = group.run([&](int rank, Communicator& communicator) {
    auto operation = operation_of(communicator);
    operation.timeout = milliseconds(300);
    if (rank == 0) come(communicator, operation);
  });
  EXPECT_NE(errors[0].find("rank 1 has not come with a tensor"), std::string::npos) << errors[0];
  EXPECT_NE(errors[0].find("its timeout of 0.3 s"), std::string::npos) << errors[0];
}

TEST(WatchdogStore, HearsOfARefusalAndOfAnotherCall) {
  for (const bool refuses : {true, false}) {
    ThreadGroup group(2);
    const auto errors = group.run([&](int rank, Communicator& communicator) {
      auto operation = operation_of(communicator, rank == 0 ? OpKind::kAllReduce : OpKind::kBroadcast);
      if (rank == 0) come(communicator, operation);
      if (refuses) throw communicator.refuse(operation, Error(ErrorKind::kInvalidArgument, "a bad tensor"));
      come(communicator, operation, "elsewhere");
    });
    const std::string expected = refuses ? "rank 1 of the group aborted it: a bad tensor" : "broadcast";
    EXPECT_NE(errors[0].find(expected), std::string::npos) << errors[0];
  }
}

TEST(WatchdogStore, EndsWhenTheGroupIsClosed) {
  ThreadGroup group(2);
  const auto errors = group.run([&](int rank, Communicator& communicator) {
    const auto operation = operation_of(communicator);
    communicator.close("the group was aborted");
    if (rank == 0) come(communicator, operation);
  });
  EXPECT_NE(errors[0].find("the group was aborted"), std::string::npos) << errors[0];
}

TEST(WatchdogStore, FindsOutThatAnyRankIsLostWhileItWaitsForAMessage) {
  auto store = std::make_shared<MapStore>();
  const ProcessId far{"another-host/pid:[1]", 77};
  LivenessSettings settings;
  settings.store = store;
  settings.members = {{0, ProcessId::own()}, {1, far}, {2, far}};
  const auto watch = std::make_shared<JobWatch>("job", settings);
  store->set("death/1", "2");
  store->add("deaths", 1);
  auto channels = make_loopback_channels(3, {});
  Communicator communicator({"test", {0, 1, 2}, store, watch},
                            std::make_unique<MessageLinks>("loopback", std::move(channels[0])));
  auto operation = operation_of(communicator, OpKind::kSend);
  operation.root = 1;
  std::string text;
  try {
    come(communicator, operation);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kPeerLost);
    text = error.what();
  }
  EXPECT_NE(text.find("global rank 2 is lost"), std::string::npos) << text;
}

}  // namespace
}  // namespace altorch
