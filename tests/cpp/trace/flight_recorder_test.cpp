// SPDX-License-Identifier: BSD-3-Clause
#include "trace/flight_recorder.h"

#include <gtest/gtest.h>

#include <thread>

#include "runtime/thread_group.h"

namespace altorch {
namespace {

FlightGroup group_of(int rank, int size) {
  FlightGroup group;
  group.name = "test";
  group.rank = rank;
  for (int each = 0; each < size; ++each) group.global_ranks.push_back(each);
  return group;
}

ObservedCall observed(const Call& call, std::uint64_t number) {
  return {call, number, 0, number, std::chrono::milliseconds(500)};
}

TEST(FlightRecorder, FollowsACallFromItsPlaceToItsEnd) {
  FlightRecorder recorder(8);
  FlightLog log(recorder, group_of(1, 4));
  Call call{.kind = OpKind::kAllGather, .dtype = DType::kFloat32, .count = 10};
  log.issued(observed(call, 7));
  auto entries = recorder.entries();
  ASSERT_EQ(entries.size(), 1u);
  EXPECT_EQ(entries[0].number, 7u);
  EXPECT_EQ(entries[0].state, FlightState::kIssued);
  EXPECT_EQ(entries[0].kind, OpKind::kAllGather);
  EXPECT_EQ(entries[0].dtype, DType::kFloat32);
  EXPECT_EQ(entries[0].input, 10);
  EXPECT_EQ(entries[0].output, 40);
  EXPECT_EQ(entries[0].sequence, 7u);
  EXPECT_EQ(entries[0].message, 0u);
  EXPECT_EQ(entries[0].timeout_ms, 500);
  EXPECT_EQ(entries[0].ended_ns, 0);
  EXPECT_EQ(recorder.group(entries[0].group)->name, "test");
  log.started(observed(call, 7));
  EXPECT_EQ(recorder.entries()[0].state, FlightState::kStarted);
  log.finished(observed(call, 7), "shm", "one_shot", std::chrono::microseconds(3));
  entries = recorder.entries();
  EXPECT_EQ(entries[0].state, FlightState::kFinished);
  EXPECT_EQ(entries[0].took, std::chrono::microseconds(3));
  EXPECT_GE(entries[0].ended_ns, entries[0].issued_ns);
  log.failed(observed(call, 7), Error(ErrorKind::kClosed, "the group was destroyed"));
  EXPECT_EQ(recorder.entries()[0].state, FlightState::kFinished) << "what is done stays done";
}

TEST(FlightRecorder, KnowsWhichTensorsARankHas) {
  FlightRecorder recorder(16);
  const std::vector<std::int64_t> counts = {1, 2, 3};
  const auto sizes = [&](int rank, Call call) {
    FlightLog log(recorder, group_of(rank, 3));
    static std::uint64_t number = 0;
    log.issued(observed(call, ++number));
    const FlightEntry entry = recorder.entries().back();
    return std::pair(entry.input, entry.output);
  };
  using Sizes = std::pair<std::optional<std::int64_t>, std::optional<std::int64_t>>;
  Call call{.kind = OpKind::kGather, .root = 1, .count = 5};
  EXPECT_EQ(sizes(0, call), Sizes(5, std::nullopt));
  EXPECT_EQ(sizes(1, call), Sizes(5, 15));
  call.kind = OpKind::kScatter;
  EXPECT_EQ(sizes(0, call), Sizes(std::nullopt, 5));
  EXPECT_EQ(sizes(1, call), Sizes(15, 5));
  call = {.kind = OpKind::kReduceScatter, .input_counts = counts};
  EXPECT_EQ(sizes(2, call), Sizes(6, 3));
  call = {.kind = OpKind::kAllToAll, .input_counts = counts, .output_counts = counts};
  EXPECT_EQ(sizes(0, call), Sizes(6, 6));
  call = {.kind = OpKind::kSend, .root = 2, .count = 4};
  EXPECT_EQ(sizes(0, call), Sizes(4, std::nullopt));
  call.kind = OpKind::kReceive;
  EXPECT_EQ(sizes(0, call), Sizes(std::nullopt, 4));
  call = {.kind = OpKind::kBarrier};
  EXPECT_EQ(sizes(0, call), Sizes(std::nullopt, std::nullopt));
}

TEST(FlightRecorder, KeepsTheLatestCallsAndDoesNotMixThem) {
  FlightRecorder recorder(4);
  FlightLog log(recorder, group_of(0, 2));
  Call call{.kind = OpKind::kBroadcast, .count = 1};
  for (std::uint64_t number = 1; number <= 10; ++number) log.issued(observed(call, number));
  log.finished(observed(call, 3), "shm", "one_shot", {});  // its slot is another's
  const auto entries = recorder.entries();
  ASSERT_EQ(entries.size(), 4u);
  for (std::size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(entries[i].number, 7 + i);
    EXPECT_EQ(entries[i].state, FlightState::kIssued);
  }
}

TEST(FlightRecorder, RecordsNothingOfWhatWasRefusedBeforeItHadAPlace) {
  FlightRecorder recorder(4);
  FlightLog log(recorder, group_of(0, 2));
  log.failed(observed(Call{}, 0), Error(ErrorKind::kInvalidArgument, "no"));
  EXPECT_TRUE(recorder.entries().empty());
}

// Groups come and go; what lives, and what the ring still holds calls of, stays.
TEST(FlightRecorder, ForgetsGroupsThatHaveEndedWithoutCalls) {
  FlightRecorder recorder(4);
  FlightLog quiet(recorder, group_of(0, 2));
  const auto called = std::make_unique<FlightLog>(recorder, group_of(0, 2));
  called->issued(observed(Call{}, 1));
  std::vector<std::uint64_t> ended;
  for (int i = 0; i < 100; ++i) {
    ended.push_back(recorder.add(group_of(0, 2)));
    recorder.end(ended.back());
  }
  EXPECT_TRUE(recorder.group(recorder.entries()[0].group));
  EXPECT_FALSE(recorder.group(ended[0]));
  quiet.issued(observed(Call{}, 2));
  EXPECT_TRUE(recorder.group(recorder.entries()[1].group)) << "it lives";
}

// Read while several threads write: whatever is read belongs together.
TEST(FlightRecorder, IsReadWhileItIsWritten) {
  FlightRecorder recorder(8);
  std::atomic<std::uint64_t> number{0};
  std::atomic<bool> done{false};
  std::vector<std::thread> writers;
  for (int writer = 0; writer < 2; ++writer) {
    writers.emplace_back([&] {
      FlightLog log(recorder, group_of(0, 2));
      for (int i = 0; i < 20'000; ++i) {
        const std::uint64_t mine = ++number;
        Call call{.kind = OpKind::kAllReduce,
                  .root = static_cast<int>(mine),
                  .count = static_cast<std::int64_t>(mine)};
        log.issued(observed(call, mine));
        log.started(observed(call, mine));
        log.finished(observed(call, mine), "shm", "one_shot", std::chrono::nanoseconds(mine));
      }
    });
  }
  std::thread reader([&] {
    while (!done) {
      for (const FlightEntry& entry : recorder.entries()) {
        EXPECT_EQ(entry.root, static_cast<int>(entry.number));
        EXPECT_EQ(entry.input, static_cast<std::int64_t>(entry.number));
        EXPECT_EQ(entry.sequence, entry.number);
      }
    }
  });
  for (auto& writer : writers) writer.join();
  done = true;
  reader.join();
  EXPECT_EQ(recorder.changes(), 40'000u);
}

TEST(FlightRecorder, WakesWhoWaitsForNews) {
  FlightRecorder recorder(8);
  FlightLog log(recorder, group_of(0, 2));
  for (std::uint64_t round = 1; round <= 2000; ++round) {
    const std::uint64_t before = recorder.changes();
    std::thread sleeper([&] { recorder.sleep_while(before); });
    if (round % 2) {
      log.issued(observed(Call{}, round));
    } else {
      recorder.nudge();
    }
    sleeper.join();
    EXPECT_EQ(recorder.changes(), before + 1);
  }
}

TEST(FlightRecorder, RecordsAGroupsCalls) {
  FlightRecorder recorder(64);  // outlives the logs of the group
  ThreadGroup group(2);
  group.run([&](int rank, Communicator& communicator) {
    communicator.add(std::make_shared<FlightLog>(recorder, group_of(rank, 2)));
    std::vector<float> values(10, 1.0f);
    for (int i = 0; i < 3; ++i) {
      Operation operation = all_reduce_of(communicator, values, DType::kFloat32);
      communicator.append_to_history(operation);
      run(communicator, operation);
    }
    Operation last = all_reduce_of(communicator, values, DType::kFloat32);
    communicator.append_to_history(last);
    communicator.abort_call(last, Error(ErrorKind::kTransport, "broken"));
  });
  int finished = 0, failed = 0;
  for (const FlightEntry& entry : recorder.entries()) {
    finished += entry.state == FlightState::kFinished;
    failed += entry.state == FlightState::kFailed;
    EXPECT_EQ(entry.input, 10);
  }
  EXPECT_EQ(finished, 6);
  EXPECT_EQ(failed, 2);
}

}  // namespace
}  // namespace altorch
