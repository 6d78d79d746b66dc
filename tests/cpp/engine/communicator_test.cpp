#include "engine/communicator.h"

#include <gtest/gtest.h>

#include <numeric>

#include "engine/thread_group.h"

namespace altorch {
namespace {

void run(Communicator& communicator, const Operation& operation) {
  bool buffers_free = false;
  communicator.run(operation, buffers_free);
  EXPECT_TRUE(buffers_free);
}

std::shared_ptr<Task> task_of(const Operation& operation) {
  auto task = std::make_shared<Task>();
  task->operation = operation;
  return task;
}

std::vector<std::string> all_good(int size) {
  return std::vector<std::string>(static_cast<std::size_t>(size));
}

TEST(Communicator, RunsCollectivesOnTheCallingThread) {
  for (const int size : {1, 2, 3, 5}) {
    ThreadGroup group(size);
    const auto errors = group.run([&](int rank, Communicator& communicator) {
      for (const int count : {0, 1, 7, 100000}) {
        std::vector<double> values(static_cast<std::size_t>(count), rank + 1.0);
        run(communicator, all_reduce_of(communicator, values, DType::kFloat64));
        for (const double value : values) ASSERT_EQ(value, size * (size + 1) / 2.0);
      }
      EXPECT_EQ(communicator.sequence(), 4u);
    });
    EXPECT_EQ(errors, all_good(size));
  }
}

TEST(Communicator, KeepsTheOrderOfQueuedAndInlineCollectives) {
  ThreadGroup group(3);
  const auto errors = group.run([&](int rank, Communicator& communicator) {
    // Every step works on the same memory: any other order than that of the calls gives other numbers.
    std::vector<std::int64_t> values(5000, rank);
    std::vector<std::shared_ptr<Task>> tasks;
    std::int64_t expected = 3;
    for (int round = 0; round < 20; ++round) {
      const auto operation = all_reduce_of(communicator, values, DType::kInt64);
      if (round % 7 == 6) {
        run(communicator, operation);
      } else {
        tasks.push_back(task_of(operation));
        communicator.submit(tasks.back());
      }
      if (round > 0) expected *= 3;
    }
    for (const auto& task : tasks) {
      EXPECT_TRUE(communicator.wait(*task, std::chrono::milliseconds(0)));
      EXPECT_FALSE(task->error.has_value());
    }
    for (const auto value : values) ASSERT_EQ(value, expected);
  });
  EXPECT_EQ(errors, all_good(3));
}

TEST(Communicator, CompletesQueuedCollectivesThatNobodyWaitsFor) {
  ThreadGroup group(2);
  std::atomic<int> done{0};
  const auto errors = group.run([&](int, Communicator& communicator) {
    std::vector<float> values(1000, 1.0f);
    auto task = task_of(all_reduce_of(communicator, values, DType::kFloat32));
    task->on_done = [&](Task&) { ++done; };
    communicator.submit(task);
    for (int i = 0; i < 5000 && !task->finished(); ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    EXPECT_TRUE(task->finished());
    EXPECT_EQ(values[999], 2.0f);
  });
  EXPECT_EQ(errors, all_good(2));
  EXPECT_EQ(done.load(), 2);
}

TEST(Communicator, CarriesMessagesIndependentlyOfCollectives) {
  ThreadGroup group(2, {.eager_bytes = 0});
  const auto errors = group.run([&](int rank, Communicator& communicator) {
    std::vector<int> mine(100, rank), theirs(100, -1);
    std::vector<std::shared_ptr<Task>> tasks;
    // Both ranks receive first: that must not stand in the way of their sends.
    for (const OpKind kind : {OpKind::kReceive, OpKind::kSend}) {
      Operation operation;
      operation.kind = kind;
      operation.dtype = DType::kInt32;
      operation.root = 1 - rank;
      operation.tag = 5;
      operation.input = mine.data();
      operation.output = theirs.data();
      operation.count = 100;
      operation.timeout = std::chrono::seconds(20);
      tasks.push_back(task_of(operation));
      communicator.post(tasks.back());
    }
    for (const auto& task : tasks) EXPECT_TRUE(communicator.wait(*task, std::chrono::milliseconds(0)));
    EXPECT_EQ(tasks[0]->source, 1 - rank);
    for (const int value : theirs) ASSERT_EQ(value, 1 - rank);
  });
  EXPECT_EQ(errors, all_good(2));
}

TEST(Communicator, TellsEveryRankThatTheirCallsDiffer) {
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

TEST(Communicator, TellsPeersWhenOneRankRefuses) {
  ThreadGroup group(2);
  const auto errors = group.run([&](int rank, Communicator& communicator) {
    std::vector<float> values(10, 1.0f);
    const auto operation = all_reduce_of(communicator, values, DType::kFloat32);
    if (rank == 1) throw communicator.refuse(operation, Error(ErrorKind::kInvalidArgument, "a bad tensor"));
    run(communicator, operation);
  });
  EXPECT_NE(errors[0].find("rank 1 of the group gave it up: a bad tensor"), std::string::npos) << errors[0];
  // What rank 0 has sent is still there, so nobody may ever receive again.
  for (int later = 0; later < 3; ++later) {
    const auto again = group.run([&](int, Communicator& communicator) {
      std::vector<float> values(10, 1.0f);
      run(communicator, all_reduce_of(communicator, values, DType::kFloat32));
    });
    EXPECT_NE(again[0].find("destroy it and make a new one"), std::string::npos) << again[0];
    EXPECT_NE(again[1].find("a bad tensor"), std::string::npos) << again[1];
    if (later > 0) {
      EXPECT_NE(again[1].find("destroy it and make a new one"), std::string::npos) << again[1];
    }
  }
}

TEST(Communicator, GoesOnAfterACallThatAllRanksRefused) {
  ThreadGroup group(3);
  const auto errors = group.run([&](int rank, Communicator& communicator) {
    for (int round = 0; round < 50; ++round) {
      std::vector<std::int64_t> values(10, rank + round);
      auto operation = all_reduce_of(communicator, values, DType::kInt64);
      if (round % 5 == 0) {
        communicator.refuse(operation, Error(ErrorKind::kInvalidArgument, "a bad tensor"));
        continue;
      }
      communicator.enroll(operation);
      run(communicator, operation);
      ASSERT_EQ(values[9], 3 * round + 3);
    }
  });
  EXPECT_EQ(errors, all_good(3));
}

// A root that sends and goes on notices nothing; whoever waits in the next call does.
TEST(Communicator, NamesTheCallAtWhichRanksParted) {
  ThreadGroup group(2);
  const auto errors = group.run([&](int rank, Communicator& communicator) {
    for (int call = 0; call < 3; ++call) {
      std::vector<float> values(4, 1.0f);
      Operation operation = all_reduce_of(communicator, values, DType::kFloat32);
      if (call == 1) {
        operation.kind = OpKind::kBroadcast;
        operation.root = rank;  // each its own
      }
      communicator.enroll(operation);
      run(communicator, operation);
    }
  });
  for (const std::string& error : errors) {
    EXPECT_NE(error.find("mismatch"), std::string::npos) << error;
    EXPECT_NE(error.find("parted at #2"), std::string::npos) << error;
    EXPECT_NE(error.find("with root 1"), std::string::npos) << error;
  }
}

// At 1aa6fc3 the group went on, and the tag came back 8192 calls later with what had been sent before.
TEST(Communicator, IsClosedByACallThatTimesOutOnOneRankOnly) {
  ThreadGroup group(2);
  std::atomic<int> right{0}, refused{0};
  const auto errors = group.run([&](int rank, Communicator& communicator) {
    for (int call = 0; call < 9000; ++call) {
      if (rank == 1 && call == 3) std::this_thread::sleep_for(std::chrono::milliseconds(700));
      std::vector<float> values(4, static_cast<float>(call));
      Operation operation = all_reduce_of(communicator, values, DType::kFloat32);
      communicator.enroll(operation);
      if (rank == 0 && call == 3) operation.timeout = std::chrono::milliseconds(300);
      try {
        run(communicator, operation);
        EXPECT_EQ(values[0], 2.0f * static_cast<float>(call));
        ++right;
      } catch (const Error& error) {
        ++refused;
        if (call > 5) {
          EXPECT_EQ(error.kind(), ErrorKind::kClosed) << error.what();
        }
      }
    }
  });
  EXPECT_EQ(errors, all_good(2));
  EXPECT_EQ(right + refused, 18000);
  EXPECT_GE(refused, 2 * 8995);
}

TEST(Communicator, CountsTheTimeOfAQueuedCallFromTheCallOn) {
  ThreadGroup group(2);
  const auto errors = group.run([&](int rank, Communicator& communicator) {
    if (rank == 1) return;
    std::vector<std::vector<float>> values(10, std::vector<float>(4, 1.0f));
    std::vector<std::shared_ptr<Task>> tasks;
    for (auto& each : values) {
      auto operation = all_reduce_of(communicator, each, DType::kFloat32);
      operation.timeout = std::chrono::milliseconds(400);
      tasks.push_back(task_of(operation));
      communicator.submit(tasks.back());
    }
    const auto began = std::chrono::steady_clock::now();
    for (const auto& task : tasks) {
      communicator.wait(*task, std::chrono::milliseconds(0));
      EXPECT_TRUE(task->error.has_value());
    }
    EXPECT_LT(std::chrono::steady_clock::now() - began, std::chrono::milliseconds(1500));
  });
  EXPECT_EQ(errors, all_good(2));
}

// As for what a GPU carries, and does not end.
void look_on(Communicator& communicator, const Operation& operation) {
  communicator.record(operation);
  Vigil vigil = communicator.begin_vigil();
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  while (std::chrono::steady_clock::now() < end) {
    if (auto error = communicator.examine(operation, vigil, std::chrono::steady_clock::now()))
      throw communicator.give_up(operation, *error);
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
}

TEST(Communicator, ComparesCallsThatSomethingElseCarries) {
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

TEST(Communicator, HearsOfRefusalsWhileSomethingElseCarriesTheCall) {
  ThreadGroup group(2);
  const auto errors = group.run([&](int rank, Communicator& communicator) {
    std::vector<float> values(10, 1.0f);
    const auto operation = all_reduce_of(communicator, values, DType::kFloat32);
    if (rank == 1) throw communicator.refuse(operation, Error(ErrorKind::kInvalidArgument, "a bad tensor"));
    look_on(communicator, operation);
  });
  EXPECT_NE(errors[0].find("rank 1 of the group gave it up: a bad tensor"), std::string::npos) << errors[0];
}

TEST(Communicator, GivesUpAtTheDeadlineAndSaysWhoIsMissing) {
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

TEST(Communicator, RefusesEverythingOnceClosedAndEndsWhatIsInFlight) {
  ThreadGroup group(2);
  const auto errors = group.run([&](int rank, Communicator& communicator) {
    if (rank == 1) return;
    std::vector<float> values(10, 1.0f);
    auto task = task_of(all_reduce_of(communicator, values, DType::kFloat32));
    communicator.submit(task);
    communicator.close("the group was destroyed");
    EXPECT_TRUE(communicator.wait(*task, std::chrono::milliseconds(0)));
    ASSERT_TRUE(task->error.has_value());
    EXPECT_EQ(task->error->kind(), ErrorKind::kClosed);
    run(communicator, all_reduce_of(communicator, values, DType::kFloat32));
  });
  EXPECT_NE(errors[0].find("the group was destroyed"), std::string::npos) << errors[0];
}

// A transport that fails as MPI does when a peer's memory has gone.
class FailingChannel : public Channel {
 public:
  int rank() const override { return 0; }
  int size() const override { return 2; }
  std::int64_t max_tag() const override { return 1 << 26; }
  void send(const void*, std::size_t, int, std::int64_t, Request&) override {}
  void receive(void*, std::size_t, int, std::int64_t, Request&) override {}
  State test(std::span<Request>, std::optional<Error>& error) override {
    error = Error(ErrorKind::kTransport, "process_vm_readv failed");
    return State::kFailed;
  }
  bool cancel(std::span<Request>) override { return true; }
};

TEST(Communicator, NamesTheDeadPeerBehindATransportsError) {
  for (const bool is_dead : {true, false}) {
    auto store = std::make_shared<MapStore>();
    LivenessSettings settings{store, nullptr};
    settings.members = {{0, ProcessCard::own()}, {1, {"another-host/pid:[1]", 77}}};
    auto watch = std::make_shared<JobWatch>("job", settings);
    auto communicator =
        std::make_shared<Communicator>(CommunicatorSettings{"test", {0, 1}, store, watch},
                                       std::make_unique<LoopbackLinks>(std::make_unique<FailingChannel>()));
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

// A transport that keeps what it was given when an operation fails, and fails in other ways than by an Error.
class KeepingChannel : public FailingChannel {
 public:
  explicit KeepingChannel(bool throws) : throws_(throws) {}
  void receive(void* data, std::size_t bytes, int, std::int64_t, Request&) override {
    kept_ = static_cast<char*>(data);
    bytes_ = bytes;
  }
  State test(std::span<Request> requests, std::optional<Error>& error) override {
    if (throws_) throw std::runtime_error("a bug");
    return FailingChannel::test(requests, error);
  }
  bool cancel(std::span<Request>) override { return false; }
  ~KeepingChannel() override { std::fill(kept_, kept_ + bytes_, 'x'); }  // address sanitizer looks on

 private:
  const bool throws_;
  char* kept_ = nullptr;
  std::size_t bytes_ = 0;
};

TEST(Communicator, NeverReleasesMemoryThatATransportMayStillWriteTo) {
  for (const bool throws : {false, true}) {
    auto store = std::make_shared<MapStore>();
    auto communicator = std::make_shared<Communicator>(
        CommunicatorSettings{"test", {0, 1}, store, nullptr},
        std::make_unique<LoopbackLinks>(std::make_unique<KeepingChannel>(throws)));
    std::vector<float> values(1000, 1.0f);
    for (int call = 0; call < 2; ++call) {
      bool buffers_free = true;
      try {
        communicator->run(all_reduce_of(*communicator, values, DType::kFloat32), buffers_free);
        ADD_FAILURE() << "no error";
      } catch (const Error& error) {
        EXPECT_EQ(buffers_free, call == 1);
        EXPECT_EQ(error.kind() == ErrorKind::kClosed, call == 1) << error.what();
        if (throws && call == 0) {
          EXPECT_NE(std::string(error.what()).find("a bug"), std::string::npos);
        }
      }
    }
  }
}

TEST(Communicator, TellsWhatClosedIt) {
  ThreadGroup group(2);
  EXPECT_FALSE(group[0].failure().has_value());
  Operation operation;
  operation.kind = OpKind::kBarrier;
  operation.sequence = 1;
  const Error told = group[0].give_up(operation, Error(ErrorKind::kTransport, "the GPU fell off"));
  EXPECT_NE(std::string(told.what()).find("barrier #1: the GPU fell off"), std::string::npos) << told.what();
  ASSERT_TRUE(group[0].failure().has_value());
  EXPECT_EQ(group[0].failure()->kind(), ErrorKind::kTransport);
  EXPECT_THROW(group[0].check_open(), Error);
  group[1].check_open();  // it has not heard of it
}

TEST(Communicator, CountsWhatItDid) {
  ThreadGroup group(2);
  group.run([&](int, Communicator& communicator) {
    std::vector<float> values(10, 1.0f);
    for (int i = 0; i < 3; ++i) run(communicator, all_reduce_of(communicator, values, DType::kFloat32));
  });
  const auto rows = group[0].statistics().rows();
  ASSERT_EQ(rows.size(), 1u);
  EXPECT_EQ(rows[0].count, 3u);
  EXPECT_EQ(rows[0].bytes, 120u);
  EXPECT_EQ(rows[0].route, "one_shot");
}

}  // namespace
}  // namespace altorch
