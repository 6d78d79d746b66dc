// SPDX-License-Identifier: BSD-3-Clause
#include "collectives/executor.h"

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <new>
#include <string>
#include <thread>
#include <vector>

#include "base/adaptive_wait.h"
#include "collectives/algorithm.h"
#include "collectives/schedule_builder.h"
#include "transports/loopback/channel.h"

namespace {
thread_local std::size_t allocations = 0;
}

// Counted for the whole test program; only the test below looks at the count.
[[gnu::noinline]] void* operator new(std::size_t bytes) {
  ++allocations;
  if (void* const memory = std::malloc(bytes)) return memory;
  throw std::bad_alloc();
}
[[gnu::noinline]] void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept {
  ++allocations;
  return std::malloc(bytes);
}
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }

namespace altorch {
namespace {

constexpr Slice whole(std::int64_t count) { return {Region::kOutput, 0, count}; }

State advance(Execution& execution) {
  std::optional<Error> error;
  return execution.advance(error);
}

// A channel on which every message is done at once and which writes down what is posted.
class RecordingChannel : public Channel {
 public:
  int rank() const override { return 0; }
  int size() const override { return 4; }
  std::int64_t max_tag() const override { return 100; }
  void send(const void*, std::size_t, int peer, std::int64_t, Request& request) override {
    write('s', peer);
    request.handle = pending ? 1 : 0;
  }
  void receive(void*, std::size_t, int peer, std::int64_t, Request& request) override {
    write('r', peer);
    request.handle = pending ? 1 : 0;
  }
  State test(std::span<Request> requests, std::optional<Error>&) override {
    ++tests;
    if (pending) return State::kPending;
    for (Request& request : requests) request.handle = 0;
    return State::kDone;
  }
  bool cancel(std::span<Request>) override { return can_cancel; }

  std::string posted() const { return std::string(log_.data(), used_); }
  bool pending = false, can_cancel = true;
  int tests = 0;

 private:
  void write(char kind, int peer) {
    if (used_ + 2 > log_.size()) return;
    log_[used_++] = kind;
    log_[used_++] = static_cast<char>('0' + peer);
  }
  std::array<char, 16> log_{};
  std::size_t used_ = 0;
};

TEST(Execution, PostsReceivesFirstAndRunsAllRoundsThatNeedNoWaiting) {
  ScheduleBuilder builder;
  builder.send(1, whole(1));
  builder.send(2, whole(1));
  builder.receive(3, whole(1));
  builder.end_round();
  builder.copy(whole(1), builder.scratch(1));
  builder.end_round();
  builder.send(1, whole(1));
  const Schedule schedule = builder.finish();

  RecordingChannel channel;
  std::int64_t output = 8, scratch = 0;
  Execution execution;
  execution.start(schedule, channel, {nullptr, &output, &scratch, DType::kInt64, ReduceOp::kSum}, 0);
  EXPECT_EQ(channel.posted(), "r3s1s2");
  EXPECT_EQ(scratch, 0);
  EXPECT_EQ(advance(execution), State::kDone);
  EXPECT_EQ(channel.posted(), "r3s1s2s1");
  EXPECT_EQ(scratch, 8);
  EXPECT_EQ(channel.tests, 2);
  EXPECT_EQ(advance(execution), State::kDone);
  EXPECT_EQ(channel.tests, 2);
}

TEST(Execution, RunsLocalStepsOnceWhileMessagesFly) {
  ScheduleBuilder builder;
  const Slice sum = builder.scratch(1);
  builder.send(1, whole(1));
  builder.reduce(sum, whole(1), sum);
  const Schedule schedule = builder.finish();

  RecordingChannel channel;
  channel.pending = true;
  std::int64_t output = 5, scratch = 2;
  Execution execution;
  execution.start(schedule, channel, {nullptr, &output, &scratch, DType::kInt64, ReduceOp::kSum}, 0);
  EXPECT_EQ(scratch, 7);
  EXPECT_EQ(advance(execution), State::kPending);
  EXPECT_EQ(advance(execution), State::kPending);
  EXPECT_EQ(scratch, 7);
  channel.pending = false;
  EXPECT_EQ(advance(execution), State::kDone);
  EXPECT_EQ(scratch, 7);
}

TEST(Execution, AnEmptyScheduleIsDoneAtOnce) {
  RecordingChannel channel;
  Execution execution;
  const Schedule schedule;
  execution.start(schedule, channel, {}, 0);
  EXPECT_EQ(advance(execution), State::kDone);
  EXPECT_TRUE(execution.cancel());
}

TEST(Execution, ACopyOntoItselfMovesNothing) {
  // The pages behind this pointer must not be touched.
  void* const nowhere = reinterpret_cast<void*>(std::uintptr_t{64});
  ScheduleBuilder builder;
  builder.copy({Region::kInput, 0, 100}, {Region::kOutput, 2, 100});
  const Schedule schedule = builder.finish();
  RecordingChannel channel;
  Execution execution;
  execution.start(schedule, channel,
                  {static_cast<std::int32_t*>(nowhere) + 2, nowhere, nullptr, DType::kInt32, ReduceOp::kSum},
                  0);
  EXPECT_EQ(advance(execution), State::kDone);
}

TEST(Execution, AllocatesNothingOnceWarm) {
  const Schedule schedule = find_algorithm(OpKind::kAllReduce, "ring")
                                ->build({.rank = 1, .size = 4, .count = 1000, .segment_count = 10});
  std::vector<float> output(1000), scratch(static_cast<std::size_t>(schedule.scratch_count));
  RecordingChannel channel;
  Execution warm;
  const auto go = [&](Execution& execution) {
    execution.start(schedule, channel,
                    {nullptr, output.data(), scratch.data(), DType::kFloat32, ReduceOp::kSum}, 0);
    while (advance(execution) == State::kPending) {
    }
  };
  go(warm);
  const std::size_t before = allocations;
  for (int i = 0; i < 100; ++i) go(warm);
  EXPECT_EQ(allocations, before);
  Execution cold;
  go(cold);
  EXPECT_GT(allocations, before) << "the count does not see what a new execution allocates";
}

TEST(Execution, ReportsAMismatchAndKeepsReportingIt) {
  const auto channels = make_loopback_channels(2);
  const Algorithm* broadcast = find_algorithm(OpKind::kBroadcast, "binomial");
  const Schedule sends = broadcast->build({.rank = 0, .size = 2, .count = 3});
  const Schedule expects = broadcast->build({.rank = 1, .size = 2, .count = 4});
  std::vector<std::int32_t> memory(4);
  Execution root, leaf;
  root.start(sends, *channels[0], {nullptr, memory.data(), nullptr, DType::kInt32, ReduceOp::kSum}, 1);
  leaf.start(expects, *channels[1], {nullptr, memory.data(), nullptr, DType::kInt32, ReduceOp::kSum}, 1);
  for (int i = 0; i < 2; ++i) {
    std::optional<Error> error;
    EXPECT_EQ(leaf.advance(error), State::kFailed);
    ASSERT_TRUE(error.has_value());
    EXPECT_EQ(error->kind(), ErrorKind::kMismatch);
    const std::string what = error->what();
    EXPECT_NE(what.find("rank 0"), std::string::npos) << what;
    EXPECT_NE(what.find("12 bytes"), std::string::npos) << what;
    EXPECT_NE(what.find("expects 16"), std::string::npos) << what;
  }
  EXPECT_TRUE(leaf.cancel());
}

TEST(Execution, CancelWithdrawsMessagesAndTheExecutionCanBeUsedAgain) {
  const auto channels = make_loopback_channels(2);
  const Algorithm* algorithm = find_algorithm(OpKind::kAllReduce, "recursive_doubling");
  std::vector<Schedule> schedules;
  for (int rank = 0; rank < 2; ++rank)
    schedules.push_back(algorithm->build({.rank = rank, .size = 2, .count = 1}));
  std::int64_t output[2] = {1, 2}, scratch[2] = {};
  Execution executions[2];
  const auto start = [&](int rank, std::int64_t tag) {
    executions[rank].start(schedules[static_cast<std::size_t>(rank)],
                           *channels[static_cast<std::size_t>(rank)],
                           {nullptr, &output[rank], &scratch[rank], DType::kInt64, ReduceOp::kSum}, tag);
  };
  start(0, 1);
  EXPECT_EQ(advance(executions[0]), State::kPending);
  EXPECT_TRUE(executions[0].cancel());
  EXPECT_EQ(advance(executions[0]), State::kDone);
  start(0, 2);
  start(1, 2);
  int done = 0;
  for (int turn = 0; turn < 10 && done < 2; ++turn) {
    done = 0;
    for (Execution& execution : executions) done += advance(execution) == State::kDone ? 1 : 0;
  }
  EXPECT_EQ(done, 2);
  EXPECT_EQ(output[0], 3);
  EXPECT_EQ(output[1], 3);
}

TEST(Execution, SaysWhenAChannelStillOwnsTheBuffers) {
  ScheduleBuilder builder;
  builder.send(1, whole(1));
  const Schedule schedule = builder.finish();
  RecordingChannel channel;
  channel.pending = true;
  channel.can_cancel = false;
  std::int64_t output = 0;
  Execution execution;
  execution.start(schedule, channel, {nullptr, &output, nullptr, DType::kInt64, ReduceOp::kSum}, 0);
  EXPECT_FALSE(execution.cancel());
}

TEST(Execution, RanksMayBeThreads) {
  constexpr int kSize = 5;
  constexpr std::int64_t kCount = 1000, kRuns = 50;
  const auto channels = make_loopback_channels(kSize, {.eager_bytes = 64, .longest_delay = 3, .seed = 9});
  const Algorithm* ring = find_algorithm(OpKind::kAllReduce, "ring");
  std::array<std::vector<std::int64_t>, kSize> outputs;
  std::atomic<bool> failed = false;  // ends all ranks
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < kSize; ++rank) {
    threads.emplace_back([&, rank] {
      const auto r = static_cast<std::size_t>(rank);
      const Schedule schedule =
          ring->build({.rank = rank, .size = kSize, .count = kCount, .segment_count = 33});
      std::vector<std::int64_t> scratch(static_cast<std::size_t>(schedule.scratch_count));
      outputs[r].assign(kCount, 1);
      Execution execution;
      for (std::int64_t run = 0; run < kRuns; ++run) {
        for (auto& element : outputs[r]) element = element % 1000 + rank;
        execution.start(schedule, *channels[r],
                        {nullptr, outputs[r].data(), scratch.data(), DType::kInt64, ReduceOp::kSum}, run % 2);
        AdaptiveWait wait;
        State state;
        while ((state = advance(execution)) == State::kPending && !failed) {
          if (std::chrono::steady_clock::now() > deadline) failed = true;
          wait.pause();
        }
        if (state != State::kDone) failed = true;
        if (failed) return;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  ASSERT_FALSE(failed);
  std::int64_t expected = 1;
  for (std::int64_t run = 0; run < kRuns; ++run) expected = expected % 1000 * kSize + kSize * (kSize - 1) / 2;
  for (const auto& output : outputs) {
    for (const auto element : output) ASSERT_EQ(element, expected);
  }
}

}  // namespace
}  // namespace altorch
