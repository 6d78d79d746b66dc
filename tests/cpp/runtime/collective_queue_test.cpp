// SPDX-License-Identifier: BSD-3-Clause
#include "runtime/collective_queue.h"

#include <gtest/gtest.h>

#include <cmath>

#include "runtime/thread_group.h"
#include "support/says.h"

namespace altorch {
namespace {

TEST(CollectiveQueue, RunsCollectivesOnTheCallingThread) {
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

TEST(CollectiveQueue, KeepsTheOrderOfQueuedAndInlineCollectives) {
  ThreadGroup group(3);
  const auto errors = group.run([&](int rank, Communicator& communicator) {
    // Every step works on the same memory: any other order than that of the calls gives other
    // numbers.
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

// As asynchronous calls do: some are done at once, some are handed over half-way, some find others
// under way.
TEST(CollectiveQueue, KeepsTheOrderOfAttempts) {
  for (const int size : {1, 2, 3}) {
    ThreadGroup group(size);
    std::atomic<int> done_at_once = 0;
    const auto errors = group.run([&](int rank, Communicator& communicator) {
      std::vector<std::int64_t> values(500, 1);
      std::vector<std::shared_ptr<Task>> tasks;
      for (int round = 0; round < 12; ++round) {
        if (rank == round % 3) std::this_thread::sleep_for(std::chrono::milliseconds(round % 2));
        const auto task = task_of(all_reduce_of(communicator, values, DType::kInt64));
        if (communicator.try_inline(*task)) {
          ++done_at_once;
          continue;
        }
        communicator.submit(task);
        tasks.push_back(task);
      }
      for (const auto& task : tasks) {
        EXPECT_TRUE(communicator.wait(*task, std::chrono::milliseconds(0)));
        EXPECT_FALSE(task->error.has_value());
      }
      for (const auto value : values) ASSERT_EQ(value, std::pow(size, 12));
    });
    EXPECT_EQ(errors, all_good(size));
    EXPECT_TRUE(size > 1 || done_at_once == 12) << done_at_once;
  }
}

TEST(CollectiveQueue, HandsAFailedAttemptToItsWaiter) {
  auto links = std::make_unique<MessageLinks>("failing", std::make_unique<FailingChannel>());
  Membership settings{"test", {0, 1}, std::make_shared<MapStore>(), nullptr};
  const auto communicator = std::make_shared<Communicator>(settings, std::move(links));
  std::vector<float> values(4, 1.0f);
  const auto task = task_of(all_reduce_of(*communicator, values, DType::kFloat32));
  int ended = 0;
  ASSERT_FALSE(communicator->try_inline(*task));
  task->on_done = [&](Task&) { ++ended; };
  communicator->submit(task);
  EXPECT_TRUE(task->finished());
  EXPECT_EQ(ended, 1);
  ASSERT_TRUE(task->error);
  EXPECT_TRUE(says(task->error->what(), "process_vm_readv failed"));
  const auto next = task_of(all_reduce_of(*communicator, values, DType::kFloat32));
  EXPECT_FALSE(communicator->try_inline(*next));
  EXPECT_THROW(communicator->submit(next), Error);
}

TEST(CollectiveQueue, CompletesQueuedCollectivesThatNoThreadWaitsFor) {
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

TEST(CollectiveQueue, CountsTheTimeOfAQueuedCallFromTheCallOn) {
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

// A transport that keeps what it was given when an operation fails, and fails in other ways than by
// an Error.
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

TEST(CollectiveQueue, NeverReleasesMemoryThatATransportMayStillWriteTo) {
  for (const bool throws : {false, true}) {
    auto store = std::make_shared<MapStore>();
    auto communicator = std::make_shared<Communicator>(
        Membership{"test", {0, 1}, store, nullptr},
        std::make_unique<MessageLinks>("loopback", std::make_unique<KeepingChannel>(throws)));
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
          EXPECT_TRUE(says(error.what(), "a bug"));
        }
      }
    }
  }
}

// A review of 0c177a2 found that it began, and ended as an internal error.
TEST(CollectiveQueue, BeginsNothingInAGroupThatWasClosedMeanwhile) {
  ThreadGroup group(2);
  std::vector<float> values(10, 1.0f);
  const Operation operation = all_reduce_of(group[0], values, DType::kFloat32);
  auto place = group[0].reserve(operation);
  group[0].close("aborted by another thread");
  bool buffers_free = false;
  try {
    place.run(buffers_free);
    FAIL() << "it ran";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kClosed);
    EXPECT_TRUE(says(error.what(), "aborted by another thread"));
  }
  EXPECT_TRUE(buffers_free);
  EXPECT_THROW(group[0].reserve(operation), Error);  // the place is free again: the group is what is not
}

}  // namespace
}  // namespace altorch
