// SPDX-License-Identifier: BSD-3-Clause
#include "runtime/group.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>

#include "runtime/thread_group.h"
#include "support/says.h"

namespace altorch {
namespace {

TEST(Group, TellsPeersWhenOneRankRefuses) {
  ThreadGroup group(2);
  const auto errors = group.run([&](int rank, Communicator& communicator) {
    std::vector<float> values(10, 1.0f);
    const auto operation = all_reduce_of(communicator, values, DType::kFloat32);
    if (rank == 1) throw communicator.refuse(operation, Error(ErrorKind::kInvalidArgument, "a bad tensor"));
    run(communicator, operation);
  });
  EXPECT_TRUE(says(errors[0], "rank 1 of the group aborted it: a bad tensor")) << errors[0];
  // What rank 0 has sent is still there, so no rank may ever receive again.
  for (int later = 0; later < 3; ++later) {
    const auto again = group.run([&](int, Communicator& communicator) {
      std::vector<float> values(10, 1.0f);
      run(communicator, all_reduce_of(communicator, values, DType::kFloat32));
    });
    EXPECT_TRUE(says(again[0], "destroy it and make a new one")) << again[0];
    EXPECT_TRUE(says(again[1], "a bad tensor")) << again[1];
    if (later > 0) {
      EXPECT_TRUE(says(again[1], "destroy it and make a new one")) << again[1];
    }
  }
}

TEST(Group, GoesOnAfterACallThatAllRanksRefused) {
  ThreadGroup group(3);
  const auto errors = group.run([&](int rank, Communicator& communicator) {
    for (int round = 0; round < 50; ++round) {
      std::vector<std::int64_t> values(10, rank + round);
      auto operation = all_reduce_of(communicator, values, DType::kInt64);
      if (round % 5 == 0) {
        communicator.refuse(operation, Error(ErrorKind::kInvalidArgument, "a bad tensor"));
        continue;
      }
      communicator.append_to_history(operation);
      run(communicator, operation);
      ASSERT_EQ(values[9], 3 * round + 3);
    }
  });
  EXPECT_EQ(errors, all_good(3));
}

// One thread of a rank trains while another one saves a checkpoint: which of the two calls comes
// first differs by rank.
TEST(Group, NumbersCallsOnGpusApart) {
  ThreadGroup group(3);
  const auto errors = group.run([&](int rank, Communicator& communicator) {
    for (int round = 1; round <= 20; ++round) {
      const auto on_gpu = [&] {
        Operation operation;
        operation.kind = OpKind::kBarrier;
        operation.device = rank;
        operation.sequence = communicator.next_sequence(operation.device);
        communicator.append_to_history(operation);
        EXPECT_EQ(communicator.started(operation).sequence, static_cast<std::uint64_t>(round));
      };
      if ((rank + round) % 2) on_gpu();
      std::vector<float> values(10, static_cast<float>(rank));
      Operation operation = all_reduce_of(communicator, values, DType::kFloat32);
      EXPECT_EQ(operation.sequence, static_cast<std::uint64_t>(round));
      communicator.append_to_history(operation);
      run(communicator, operation);
      EXPECT_EQ(values[9], 3.0f);
      if ((rank + round) % 2 == 0) on_gpu();
    }
    EXPECT_EQ(communicator.count_calls(), 40u);
  });
  EXPECT_EQ(errors, all_good(3));
}

TEST(Group, ABarrierMayHaveAPlaceAmongTheCallsOnGpus) {
  ThreadGroup group(2);
  Operation barrier;
  barrier.kind = OpKind::kBarrier;
  barrier.sequence = group[1].next_sequence();
  group[1].append_to_history(barrier);
  group[1].append_to_gpu_history(barrier);
  EXPECT_EQ(group[1].count_calls(), 1u);
  std::vector<float> values(10);
  Operation waits = all_reduce_of(group[0], values, DType::kFloat32);
  waits.device = 0;
  waits.sequence = group[0].next_sequence(waits.device);
  group[0].append_to_history(waits);
  const CallNote note = group[0].started(waits);
  EXPECT_EQ(note.sequence, 1u);
  group[1].board().answer(note);
  const auto finding = group[0].board().compare(note);
  ASSERT_TRUE(finding);
  EXPECT_EQ(describe_fingerprint(finding->called.fingerprint), "barrier");
}

// At 1aa6fc3 the group went on, and the tag came back 8192 calls later with what had been sent
// before.
TEST(Group, IsClosedByACallThatTimesOutOnOneRankOnly) {
  ThreadGroup group(2);
  std::atomic<int> right{0}, refused{0};
  const auto errors = group.run([&](int rank, Communicator& communicator) {
    for (int call = 0; call < 9000; ++call) {
      if (rank == 1 && call == 3) std::this_thread::sleep_for(std::chrono::milliseconds(700));
      std::vector<float> values(4, static_cast<float>(call));
      Operation operation = all_reduce_of(communicator, values, DType::kFloat32);
      communicator.append_to_history(operation);
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

TEST(Group, RefusesEverythingOnceClosedAndEndsWhatIsInFlight) {
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
  EXPECT_TRUE(says(errors[0], "the group was destroyed")) << errors[0];
}

TEST(Group, TellsWhatClosedIt) {
  ThreadGroup group(2);
  EXPECT_FALSE(group[0].failure().has_value());
  Operation operation;
  operation.kind = OpKind::kBarrier;
  operation.sequence = 1;
  const Error told = group[0].abort_call(operation, Error(ErrorKind::kTransport, "the GPU fell off"));
  EXPECT_TRUE(says(told.what(), "barrier #1: the GPU fell off")) << told.what();
  ASSERT_TRUE(group[0].failure().has_value());
  EXPECT_EQ(group[0].failure()->kind(), ErrorKind::kTransport);
  EXPECT_THROW(group[0].check_open(), Error);
  group[1].check_open();  // it has not heard of it
}

TEST(Group, CountsWhatItDid) {
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

class Diary : public Observer {
 public:
  void issued(const ObservedCall& call) override { note("issued", call); }
  void started(const ObservedCall& call) override { note("started", call); }
  void finished(const ObservedCall& call, const char* transport, std::string_view route,
                std::chrono::nanoseconds) override {
    note("finished by " + std::string(transport) + ":" + std::string(route), call);
  }
  void failed(const ObservedCall& call, const Error& error) override {
    note("failed (" + std::string(error.what()).substr(0, 27) + ")", call);
  }
  std::string text;

 private:
  void note(const std::string& what, const ObservedCall& call) {
    text += what + " " + name_of(call.call.kind) + " #" + std::to_string(call.sequence) + " of " +
            std::to_string(call.bytes) + "; ";
  }
};

TEST(Group, TellsObserversOfEveryCallFromItsPlaceToItsEnd) {
  ThreadGroup group(2);
  std::array<std::shared_ptr<Diary>, 2> diaries;
  group.run([&](int rank, Communicator& communicator) {
    const auto diary = diaries[static_cast<std::size_t>(rank)] = std::make_shared<Diary>();
    communicator.add(diary);
    std::vector<float> values(10, 1.0f);
    Operation first = all_reduce_of(communicator, values, DType::kFloat32);
    communicator.append_to_history(first);
    run(communicator, first);
    Operation second;
    second.kind = OpKind::kBarrier;
    second.sequence = communicator.next_sequence();
    communicator.refuse(second, Error(ErrorKind::kInvalidArgument, "no"));
    Operation third = all_reduce_of(communicator, values, DType::kFloat32);
    communicator.append_to_history(third);
    communicator.abort_call(third, Error(ErrorKind::kTransport, "broken"));
  });
  for (const auto& diary : diaries) {
    EXPECT_EQ(diary->text,
              "issued all_reduce #1 of 40; started all_reduce #1 of 40; "
              "finished by loopback:one_shot all_reduce #1 of 40; "
              "failed (altorch: group 'test', rank) barrier #2 of 0; "
              "issued all_reduce #3 of 40; failed (altorch: group 'test', rank) all_reduce #3 of 0; ");
  }
}

// Though nothing of this process has waited yet: what would see to that is started late.
TEST(Group, IsNoGroupOfAForkedChild) {
  ThreadGroup group(2);
  const pid_t child = fork();
  if (child == 0) {
    int caught = 0;
    try {
      group[0].check_open();
    } catch (const Error& error) {
      caught = says(error.what(), "forked") ? 42 : 1;
    }
    Driven found;
    _exit(group[0].drive(found) ? 2 : caught);
  }
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_EQ(WEXITSTATUS(status), 42);
}

TEST(Group, TellsObserversOfMessages) {
  ThreadGroup group(2);
  std::array<std::shared_ptr<Diary>, 2> diaries;
  group.run([&](int rank, Communicator& communicator) {
    const auto diary = diaries[static_cast<std::size_t>(rank)] = std::make_shared<Diary>();
    communicator.add(diary);
    std::int32_t value = rank;
    const auto task = std::make_shared<Task>();
    task->operation.kind = rank == 0 ? OpKind::kSend : OpKind::kReceive;
    task->operation.root = 1 - rank;
    task->operation.dtype = DType::kInt32;
    task->operation.count = 1;
    task->operation.input = task->operation.output = &value;
    task->operation.timeout = std::chrono::seconds(10);
    communicator.post(task);
    communicator.wait(*task, std::chrono::milliseconds(0));
    EXPECT_EQ(value, 0);
  });
  EXPECT_EQ(diaries[0]->text,
            "issued send #0 of 4; started send #0 of 4; finished by loopback:message send #0 of 4; ");
  EXPECT_EQ(diaries[1]->text,
            "issued recv #0 of 4; started recv #0 of 4; finished by loopback:message recv #0 of 4; ");
}

}  // namespace
}  // namespace altorch
