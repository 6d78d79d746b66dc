// SPDX-License-Identifier: BSD-3-Clause
#include "runtime/point_to_point.h"

#include <gtest/gtest.h>

#include "runtime/thread_group.h"

namespace altorch {
namespace {

TEST(PointToPoint, CarriesMessagesIndependentlyOfCollectives) {
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

std::shared_ptr<Task> message(OpKind kind, int peer, int& value, const Gate& gate = {}) {
  Operation operation;
  operation.kind = kind;
  operation.dtype = DType::kInt32;
  operation.root = peer;
  operation.tag = 3;
  operation.input = operation.output = &value;
  operation.count = 1;
  operation.timeout = std::chrono::seconds(20);
  auto task = task_of(operation);
  task->gate = gate;
  return task;
}

// A large message that it copies itself, part by part: who drives it must not sleep for the sender
// in between.
class CopyingChannel : public FailingChannel {
 public:
  State test(std::span<Request>, std::optional<Error>&) override {
    if (copied_ == 4) return State::kPending;  // and now it is the sender's turn
    ++copied_;
    WaitTarget::raise(news_, sleepers_);
    return State::kPending;
  }
  WaitTarget wait_target() const override { return {news_, sleepers_, news_.load() + 1, /*crowded=*/true}; }

 private:
  int copied_ = 0;
  WaitTarget::Number news_{0};
  mutable WaitTarget::Sleepers sleepers_{0};
};

TEST(PointToPoint, HasMovedWhereItCopiedAPart) {
  Group group({"test", {0, 1}, std::make_shared<MapStore>(), nullptr}, 0, 2);
  Watchdog watchdog(group);
  MessageLinks links("copying", std::make_unique<CopyingChannel>());
  PointToPoint messages(group, watchdog, links);
  std::vector<float> values(4);
  Operation operation;
  operation.kind = OpKind::kReceive;
  operation.dtype = DType::kFloat32;
  operation.root = 1;
  operation.output = values.data();
  operation.count = 4;
  operation.timeout = std::chrono::seconds(20);
  const auto task = task_of(operation);
  EXPECT_TRUE(messages.post(task));
  std::vector<bool> moved;
  for (int turn = 0; turn < 6; ++turn) {
    Driven found;
    EXPECT_TRUE(messages.drive(std::chrono::steady_clock::now(), found));
    moved.push_back(found.moved);
    EXPECT_EQ(found.wait_target().sleep(std::chrono::microseconds(1)), !found.moved);
  }
  EXPECT_EQ(moved, (std::vector<bool>{true, true, true, false, false, false}));
  group.close("the test is over");
  Driven found;
  EXPECT_FALSE(messages.drive(std::chrono::steady_clock::now(), found));
}

// A message that is done at once needs no waiting thread. The caller posts any other one; each
// counts only once.
TEST(PointToPoint, BeginsBeforeAThreadWaits) {
  for (const std::size_t eager : {std::size_t{0}, std::size_t{1} << 10}) {
    ThreadGroup group(2, {.eager_bytes = eager});
    std::atomic<int> done_at_once{0};
    const auto errors = group.run([&](int rank, Communicator& communicator) {
      for (int round = 0; round < 50; ++round) {
        int value = rank == 0 ? round : -1;
        const auto task = message(rank == 0 ? OpKind::kSend : OpKind::kReceive, 1 - rank, value);
        if (communicator.attempt_message(*task)) {
          ++done_at_once;
        } else {
          communicator.post(task);
          EXPECT_TRUE(communicator.wait(*task, std::chrono::milliseconds(0)));
        }
        EXPECT_FALSE(task->error);
        ASSERT_EQ(value, round);
        EXPECT_EQ(task->source, 1 - rank);
      }
      const auto rows = communicator.statistics().rows();
      ASSERT_EQ(rows.size(), 1u);
      EXPECT_EQ(rows[0].count, 50u);
    });
    EXPECT_EQ(errors, all_good(2));
    EXPECT_TRUE(eager == 0 || done_at_once >= 50) << "every send";
  }
}

TEST(PointToPoint, HandsAFailedAttemptToItsWaiter) {
  Group group({"test", {0, 1}, std::make_shared<MapStore>(), nullptr}, 0, 2);
  Watchdog watchdog(group);
  MessageLinks links("failing", std::make_unique<FailingChannel>());
  PointToPoint messages(group, watchdog, links);
  int value = 0;
  const auto task = message(OpKind::kSend, 1, value);
  EXPECT_FALSE(messages.try_inline(*task));
  int ended = 0;
  task->on_done = [&](Task& done) {
    ++ended;
    EXPECT_TRUE(done.error);
  };
  EXPECT_FALSE(messages.post(task));
  EXPECT_EQ(ended, 1);
  ASSERT_TRUE(task->error);
  EXPECT_NE(std::string(task->error->what()).find("process_vm_readv failed"), std::string::npos);
  EXPECT_TRUE(group.is_closing());
  const auto late = message(OpKind::kSend, 1, value);
  EXPECT_THROW(messages.try_inline(*late), Error);
}

// What memory that is shared with a damaged process holds makes test() throw, for instance.
class ThrowingChannel : public SilentChannel {
 public:
  explicit ThrowingChannel(int& cancelled) : cancelled_(cancelled) {}
  State test(std::span<Request>, std::optional<Error>&) override {
    throw Error(ErrorKind::kTransport, "a frame makes no sense");
  }
  bool cancel(std::span<Request>) override {
    ++cancelled_;
    return false;
  }

 private:
  int& cancelled_;
};

TEST(PointToPoint, WithdrawsAMessageWhoseFirstTestThrows) {
  for (const bool at_once : {true, false}) {
    int cancelled = 0, value = 0;
    Group group({"test", {0, 1}, std::make_shared<MapStore>(), nullptr}, 0, 2);
    Watchdog watchdog(group);
    MessageLinks links("throwing", std::make_unique<ThrowingChannel>(cancelled));
    PointToPoint messages(group, watchdog, links);
    const auto task = message(OpKind::kReceive, 1, value);
    if (at_once) {
      EXPECT_FALSE(messages.try_inline(*task));
    }
    EXPECT_FALSE(messages.post(task));
    EXPECT_EQ(cancelled, 1);
    EXPECT_FALSE(task->buffers_free) << "the transport may still write there";
    ASSERT_TRUE(task->error);
    EXPECT_NE(std::string(task->error->what()).find("makes no sense"), std::string::npos);
    EXPECT_TRUE(group.is_closing());
  }
}

// Gates open in any order; of one tag the receives take what was sent in the order of the calls.
TEST(PointToPoint, BeginsThoseBehindGatesInTheOrderOfTheCalls) {
  ThreadGroup group(2);
  const auto errors = group.run([&](int rank, Communicator& communicator) {
    constexpr int kMessages = 8;
    std::vector<int> values(kMessages, -1);
    std::vector<Flag> flags(kMessages);
    std::vector<std::shared_ptr<Task>> tasks;
    for (int i = 0; i < kMessages; ++i) {
      if (rank == 0) values[static_cast<std::size_t>(i)] = i;
      Gate gate;
      if (rank == 0) gate = {&flags[static_cast<std::size_t>(i)], 1};
      tasks.push_back(message(rank == 0 ? OpKind::kSend : OpKind::kReceive, 1 - rank,
                              values[static_cast<std::size_t>(i)], gate));
      communicator.post(tasks.back());
    }
    for (auto flag = flags.rbegin(); flag != flags.rend(); ++flag) flag->raise(1);
    for (int i = 0; i < kMessages; ++i) {
      EXPECT_TRUE(communicator.wait(*tasks[static_cast<std::size_t>(i)], std::chrono::milliseconds(0)));
      EXPECT_FALSE(tasks[static_cast<std::size_t>(i)]->error);
      EXPECT_EQ(values[static_cast<std::size_t>(i)], i);
    }
  });
  EXPECT_EQ(errors, all_good(2));
}

TEST(PointToPoint, AClosedGroupEndsWhatWaitsAtAGate) {
  ThreadGroup group(2);
  int value = 1;
  Flag never;
  const auto gated = message(OpKind::kSend, 1, value, {&never, 1});
  const auto posted = message(OpKind::kReceive, 1, value);
  group[0].post(gated);
  group[0].post(posted);
  EXPECT_FALSE(group[0].wait(*gated, std::chrono::milliseconds(50)));
  group[0].close("the group was destroyed");
  for (const auto& task : {gated, posted}) {
    EXPECT_TRUE(group[0].wait(*task, std::chrono::milliseconds(0)));
    ASSERT_TRUE(task->error);
    EXPECT_EQ(task->error->kind(), ErrorKind::kClosed);
  }
  EXPECT_THROW(group[0].post(message(OpKind::kSend, 1, value)), Error);
}

}  // namespace
}  // namespace altorch
