// SPDX-License-Identifier: BSD-3-Clause
#include "runtime/watchdog.h"

#include <gtest/gtest.h>

#include "runtime/thread_group.h"

namespace altorch {
namespace {

TEST(Watchdog, TellsEveryRankThatTheirCallsDiffer) {
  ThreadGroup group(3);
  const auto errors = group.run([&](int rank, Communicator& communicator) {
    std::vector<float> values(rank == 1 ? 12 : 10, 1.0f);
    run(communicator, all_reduce_of(communicator, values, DType::kFloat32));
  });
  for (const std::string& error : errors) {
    EXPECT_NE(error.find("mismatch"), std::string::npos) << error;
    EXPECT_NE(error.find("all_reduce #1"), std::string::npos) << error;
    EXPECT_NE(error.find("group 'test'"), std::string::npos) << error;
  }
}

// A root that sends and goes on notices nothing; a rank that waits in the next call does.
TEST(Watchdog, NamesTheCallAtWhichRanksParted) {
  ThreadGroup group(2);
  const auto errors = group.run([&](int rank, Communicator& communicator) {
    for (int call = 0; call < 3; ++call) {
      std::vector<float> values(4, 1.0f);
      Operation operation = all_reduce_of(communicator, values, DType::kFloat32);
      if (call == 1) {
        operation.kind = OpKind::kBroadcast;
        operation.root = rank;  // each its own
      }
      communicator.append_to_history(operation);
      run(communicator, operation);
    }
  });
  for (const std::string& error : errors) {
    EXPECT_NE(error.find("mismatch"), std::string::npos) << error;
    EXPECT_NE(error.find("parted at #2"), std::string::npos) << error;
    EXPECT_NE(error.find("with root 1"), std::string::npos) << error;
  }
}

// As for what a GPU carries, and does not end.
void look_on(Communicator& communicator, const Operation& operation) {
  communicator.started(operation);
  Wait wait = communicator.watchdog().begin_wait(operation);
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  while (std::chrono::steady_clock::now() < end) {
    if (auto error = communicator.watchdog().examine(operation, wait, std::chrono::steady_clock::now()))
      throw communicator.abort_call(operation, *error);
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
}

TEST(Watchdog, ComparesCallsThatSomethingElseCarries) {
  ThreadGroup group(2);
  const auto errors = group.run([&](int rank, Communicator& communicator) {
    std::vector<float> values(10, 1.0f);
    auto operation = all_reduce_of(communicator, values, DType::kFloat32);
    if (rank == 1) operation.kind = OpKind::kBroadcast;
    look_on(communicator, operation);
  });
  for (const std::string& error : errors) {
    EXPECT_NE(error.find("same calls in the same order"), std::string::npos) << error;
    EXPECT_NE(error.find("broadcast"), std::string::npos) << error;
  }
}

TEST(Watchdog, HearsOfRefusalsWhileSomethingElseCarriesTheCall) {
  ThreadGroup group(2);
  const auto errors = group.run([&](int rank, Communicator& communicator) {
    std::vector<float> values(10, 1.0f);
    const auto operation = all_reduce_of(communicator, values, DType::kFloat32);
    if (rank == 1) throw communicator.refuse(operation, Error(ErrorKind::kInvalidArgument, "a bad tensor"));
    look_on(communicator, operation);
  });
  EXPECT_NE(errors[0].find("rank 1 of the group aborted it: a bad tensor"), std::string::npos) << errors[0];
}

TEST(Watchdog, AbortsAtTheDeadlineAndSaysWhoIsMissing) {
  ThreadGroup group(2);
  const auto errors = group.run([&](int rank, Communicator& communicator) {
    if (rank == 1) return;
    std::vector<float> values(10, 1.0f);
    auto operation = all_reduce_of(communicator, values, DType::kFloat32);
    operation.timeout = std::chrono::milliseconds(300);
    run(communicator, operation);
  });
  EXPECT_NE(errors[0].find("timeout of 0.3 s"), std::string::npos) << errors[0];
  EXPECT_NE(errors[0].find("not waiting in this group: 1"), std::string::npos) << errors[0];
}

TEST(Watchdog, NamesTheDeadPeerBehindATransportsError) {
  for (const bool is_dead : {true, false}) {
    auto store = std::make_shared<MapStore>();
    LivenessSettings settings;
    settings.store = store;
    settings.members = {{0, ProcessId::own()}, {1, {"another-host/pid:[1]", 77}}};
    auto watch = std::make_shared<JobWatch>("job", settings);
    auto communicator = std::make_shared<Communicator>(
        Membership{"test", {0, 1}, store, watch},
        std::make_unique<MessageLinks>("loopback", std::make_unique<FailingChannel>()));
    std::thread neighbour([&] {  // the word of its death comes after the failure
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
      if (!is_dead) return;
      store->set("death/1", "1");
      store->add("deaths", 1);
    });
    std::vector<float> values(8, 1.0f);
    try {
      run(*communicator, all_reduce_of(*communicator, values, DType::kFloat32));
      ADD_FAILURE() << "no error";
    } catch (const Error& error) {
      const std::string text = error.what();
      EXPECT_EQ(error.kind(), is_dead ? ErrorKind::kPeerLost : ErrorKind::kTransport);
      EXPECT_EQ(text.find("global rank 1 is lost") != std::string::npos, is_dead) << text;
      EXPECT_NE(text.find("process_vm_readv failed"), std::string::npos) << text;
    }
    neighbour.join();
  }
}

// Nothing is ever sent; a look says that the peer has gone.
class ForsakenChannel : public FailingChannel {
 public:
  State test(std::span<Request>, std::optional<Error>& error) override {
    error = Error(ErrorKind::kPeerLost, "global rank 1 is lost: it has closed the connection");
    return State::kFailed;
  }
};

std::string told_by_the_forsaken(const std::string& key, const std::string& word) {
  auto store = std::make_shared<MapStore>();
  if (!key.empty()) store->set(key, word);
  auto communicator = std::make_shared<Communicator>(
      Membership{"test", {0, 1}, store, nullptr},
      std::make_unique<MessageLinks>("loopback", std::make_unique<ForsakenChannel>()));
  std::vector<float> values(8, 1.0f);
  Operation operation = all_reduce_of(*communicator, values, DType::kFloat32);
  communicator->append_to_history(operation);
  try {
    run(*communicator, operation);
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

TEST(Watchdog, PrefersAPeersReasonToItsDeath) {
  const std::string mismatch = std::to_string(static_cast<int>(ErrorKind::kMismatch));
  const std::string lost = std::to_string(static_cast<int>(ErrorKind::kPeerLost));
  const auto tells = [](const std::string& text, const char* words) {
    EXPECT_NE(text.find(words), std::string::npos) << text;
  };
  tells(told_by_the_forsaken("", ""), "has closed the connection");
  tells(told_by_the_forsaken("board/closed", "1 " + mismatch + " all_reduce #1: they differ"),
        "rank 1 of the group aborted all_reduce #1: they differ");
  tells(told_by_the_forsaken("board/answer/cpu/1", "1 refused a bad tensor"), "aborted it: a bad tensor");
  const auto told_of_loss = [&](const char* words) {
    return told_by_the_forsaken("board/closed", "1 " + lost + " all_reduce #1: " + words);
  };
  tells(told_of_loss("a peer is lost"), "has closed the connection");
  tells(told_of_loss("global rank 0 is lost: no answer"), "has closed the connection");
  tells(told_of_loss("global rank 7 is lost: it has ended"), "global rank 7 is lost: it has ended");
}

}  // namespace
}  // namespace altorch
