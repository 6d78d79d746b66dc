// SPDX-License-Identifier: BSD-3-Clause
#include "transports/shm/collectives.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <deque>
#include <future>
#include <random>
#include <thread>

#include "reduction/reduce.h"
#include "reduction/reference.h"
#include "support/says.h"
#include "transports/collectives_conformance.h"
#include "transports/shm/shm_ranks.h"

namespace altorch::shm {
namespace {

using conformance::Member;
using conformance::run;
using Bytes = std::vector<std::byte>;

constexpr std::size_t kSmallest = 1,
                      kUsual = 4 << 20;  // limits of the memory; the first gives the smallest areas

TEST(ShmCollectives, Conform) {
  int turn = -1;
  for (const int size : {2, 3, 5}) {
    for (const std::size_t limit : {kSmallest, kUsual}) {
      ++turn;
      for (const bool may_read : ways_to_copy()) {
        // Half of them, where they take long: each two of the three still occur together.
        if (kSlowMemory && (turn / 2 + turn + may_read) % 2 != 0) continue;
        // A core for each rank, or an unknown number where ranks may read: not every way meets
        // every other.
        const auto cores = may_read ? std::optional<int>() : size;
        const auto errors = with_shared_memory(
            size, limit,
            [&](int rank, ShmCollectives& own) {
              conformance::collectives_conform({own, rank, size});
            },
            processes_of(size, may_read), {}, cores);
        EXPECT_EQ(errors, all_good(size)) << may_read;
      }
    }
  }
}

// The same numbers on every rank.
struct Draw {
  std::mt19937 random;
  std::int64_t upto(std::int64_t most) {
    return static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(most + 1));
  }
  // Mostly small, sometimes about the size of an area, sometimes of many.
  std::int64_t count() {
    switch (upto(5)) {
      case 0:
        return upto(2);
      case 1:
        return upto(200'000);
      case 2:
        return 4090 + upto(20);
      default:
        return upto(6000);
    }
  }
};

Bytes noise(std::size_t bytes, unsigned seed) {
  std::mt19937 random(seed);
  Bytes made(bytes);
  for (std::byte& each : made) each = static_cast<std::byte>(random());
  return made;
}

// Small integers, in any type: sums are exact, whatever the order.
Bytes small_integers(DType dtype, std::int64_t count, unsigned seed) {
  std::mt19937 random(seed);
  Bytes made(static_cast<std::size_t>(count) * size_of(dtype));
  for (std::size_t i = 0; i < static_cast<std::size_t>(count); ++i) {
    const auto value = static_cast<int>(random() % 7);
    if (dtype == DType::kFloat32) reference::put(made.data(), i, static_cast<float>(value));
    if (dtype == DType::kInt16) reference::put(made.data(), i, static_cast<std::int16_t>(value));
    if (dtype == DType::kBFloat16) reference::put(made.data(), i, reference::encode_half(dtype, value));
  }
  return made;
}

double value_at(DType dtype, const Bytes& bytes, std::size_t i) {
  if (dtype == DType::kFloat32) return reference::get<float>(bytes.data(), i);
  if (dtype == DType::kInt16) return reference::get<std::int16_t>(bytes.data(), i);
  return reference::decode_half(dtype, reference::get<std::uint16_t>(bytes.data(), i));
}

// The same ranks, by a protocol that is drawn; empty: none is named.
Member by_drawn_protocol(const Member& me, Draw& draw, OpKind kind) {
  const auto names = shm_protocols(kind);
  const auto drawn = static_cast<std::size_t>(draw.upto(static_cast<std::int64_t>(names.size())));
  return {me.collectives, me.rank, me.size, drawn < names.size() ? names[drawn] : ""};
}

void reduces_right(const Member& me, Draw& draw) {
  const DType dtype = std::array{DType::kFloat32, DType::kInt16, DType::kBFloat16}[draw.random() % 3];
  const std::int64_t count = draw.count();
  const auto seed = static_cast<unsigned>(draw.random());
  const int root = static_cast<int>(draw.upto(me.size - 1));
  const bool to_all = draw.upto(2) > 0;
  const Member asked = by_drawn_protocol(me, draw, OpKind::kReduce);
  std::vector<double> sum(static_cast<std::size_t>(count));
  for (int rank = 0; rank < me.size; ++rank) {
    const Bytes theirs = small_integers(dtype, count, seed + static_cast<unsigned>(rank));
    for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += value_at(dtype, theirs, i);
  }
  Bytes own = small_integers(dtype, count, seed + static_cast<unsigned>(me.rank));
  Call call{
      to_all ? OpKind::kAllReduce : OpKind::kReduce, dtype, ReduceOp::kSum, root, own.data(), own.data()};
  call.count = count;
  run(asked, call);
  if (!to_all && me.rank != root) return;
  for (std::size_t i = 0; i < sum.size(); ++i)
    conformance::expect(value_at(dtype, own, i) == sum[i], "a sum is wrong");
}

void moves_right(const Member& me, Draw& draw) {
  const auto size = static_cast<std::size_t>(me.size), self = static_cast<std::size_t>(me.rank);
  std::vector<std::vector<std::int64_t>> counts(size, std::vector<std::int64_t>(size));
  for (auto& row : counts) {
    for (auto& each : row) each = draw.count();
  }
  const auto seed = static_cast<unsigned>(draw.random());
  const auto block = [&](std::size_t from, std::size_t to) {
    return noise(static_cast<std::size_t>(counts[from][to]), seed + static_cast<unsigned>(from * size + to));
  };
  Bytes input, expected;
  std::vector<std::int64_t> to, from;
  for (std::size_t peer = 0; peer < size; ++peer) {
    const Bytes out = block(self, peer), in = block(peer, self);
    input.insert(input.end(), out.begin(), out.end());
    expected.insert(expected.end(), in.begin(), in.end());
    to.push_back(counts[self][peer]);
    from.push_back(counts[peer][self]);
  }
  Bytes output(expected.size());
  Call call{OpKind::kAllToAll, DType::kUInt8, ReduceOp::kSum, 0, input.data(), output.data()};
  call.input_counts = to;
  call.output_counts = from;
  run(by_drawn_protocol(me, draw, call.kind), call);
  conformance::expect(output == expected, "an uneven all_to_all is wrong");
}

// Blocks of all sizes, to and from one rank, and to all.
void gathers_right(const Member& me, Draw& draw) {
  const int root = static_cast<int>(draw.upto(me.size - 1));
  const auto kind = std::array{OpKind::kGather, OpKind::kAllGather, OpKind::kScatter}[draw.random() % 3];
  std::vector<std::int64_t> counts;
  Bytes all, own;
  for (int rank = 0; rank < me.size; ++rank) {
    counts.push_back(draw.count());
    const Bytes block = noise(static_cast<std::size_t>(counts.back()), static_cast<unsigned>(draw.random()));
    all.insert(all.end(), block.begin(), block.end());
    if (rank == me.rank) own = block;
  }
  const bool scatters = kind == OpKind::kScatter, has_all = me.rank == root || kind == OpKind::kAllGather;
  const Bytes& expected = scatters ? own : all;
  Bytes output(expected.size());
  Call call{kind, DType::kUInt8, ReduceOp::kSum, root, scatters ? all.data() : own.data(), output.data()};
  call.count = static_cast<std::int64_t>(own.size());
  if (has_all) (scatters ? call.input_counts : call.output_counts) = counts;
  run(by_drawn_protocol(me, draw, kind), call);
  conformance::expect(!(scatters || has_all) || output == expected, "uneven blocks are wrong");
}

void shows_right(const Member& me, Draw& draw) {
  const int root = static_cast<int>(draw.upto(me.size - 1));
  const Bytes sent = noise(static_cast<std::size_t>(draw.count()), static_cast<unsigned>(draw.random()));
  Bytes vector = me.rank == root ? sent : Bytes(sent.size());
  Call call{OpKind::kBroadcast, DType::kUInt8, ReduceOp::kSum, root, nullptr, vector.data()};
  call.count = static_cast<std::int64_t>(vector.size());
  run(me, call);
  conformance::expect(vector == sent, "a broadcast is wrong");
}

TEST(ShmCollectives, AreRightInAnyOrder) {
  for (const int size : {2, 3, 8}) {
    for (const auto& [limit, may_read] :
         {std::pair(kSmallest, false), {kUsual, false}, {kSmallest, true}, {kUsual, true}}) {
      if (may_read && Process::own().unsupported_reason()) continue;  // Conform says so
      const auto body = [&](int rank, ShmCollectives& own) {
        const Member me{own, rank, size};
        Draw draw{std::mt19937(static_cast<unsigned>(size))};
        for (int turn = 0; turn < 60; ++turn) {
          switch (draw.upto(4)) {
            case 0:
              moves_right(me, draw);
              break;
            case 1:
              shows_right(me, draw);
              break;
            case 2:
              run(me, Call{OpKind::kBarrier});
              break;
            case 3:
              gathers_right(me, draw);
              break;
            default:
              reduces_right(me, draw);
          }
        }
      };
      const auto cores = may_read ? std::optional(size) : std::nullopt;
      const auto errors = with_shared_memory(size, limit, body, processes_of(size, may_read), {}, cores);
      EXPECT_EQ(errors, all_good(size)) << may_read;
    }
  }
}

// As one combine() of all ranks' vectors: half types are rounded once, AVG is the mean, and neither
// the size nor the position of an element makes a difference.
TEST(ShmCollectives, GiveTheBitsOfOneCombination) {
  constexpr int kSize = 3;
  for (const DType dtype : {DType::kFloat32, DType::kBFloat16, DType::kFloat16}) {
    for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kAvg, ReduceOp::kProduct}) {
      constexpr std::int64_t kCount = 100'003;
      std::vector<Bytes> all;
      std::vector<const void*> parts;
      std::mt19937 random(5);
      std::normal_distribution<float> normal;
      for (int rank = 0; rank < kSize; ++rank) {
        std::vector<float> wide(kCount);
        for (float& each : wide) each = normal(random);
        all.emplace_back(kCount * size_of(dtype));
        if (dtype == DType::kFloat32) std::memcpy(all.back().data(), wide.data(), all.back().size());
        if (is_half(dtype)) narrow(dtype, wide.data(), all.back().data(), kCount);
      }
      for (const Bytes& each : all) parts.push_back(each.data());
      Bytes expected(all[0].size());
      combine(dtype, op, parts, expected.data(), kCount);
      const auto errors = with_shared_memory(kSize, kUsual, [&](int rank, ShmCollectives& own) {
        for (const std::int64_t count : {std::int64_t{5}, std::int64_t{3000}, std::int64_t{kCount}}) {
          Bytes mine = all[static_cast<std::size_t>(rank)];
          Call call{OpKind::kAllReduce, dtype, op, 0, nullptr, mine.data()};
          call.count = count;
          run({own, rank, kSize}, call);
          conformance::expect(
              std::equal(mine.begin(), mine.begin() + count * static_cast<std::int64_t>(size_of(dtype)),
                         expected.begin()),
              "other bits");
        }
      });
      EXPECT_EQ(errors, all_good(kSize));
    }
  }
}

TEST(ShmCollectives, ApplyTheFactorsOfTheRanks) {
  constexpr int kSize = 3;
  for (const OpKind kind : {OpKind::kAllReduce, OpKind::kReduce, OpKind::kReduceScatter}) {
    for (const std::int64_t count : {std::int64_t{3}, std::int64_t{90'000}}) {
      const auto errors = with_shared_memory(kSize, kSmallest, [&](int rank, ShmCollectives& own) {
        const bool scatters = kind == OpKind::kReduceScatter;
        std::vector<double> input(static_cast<std::size_t>(count * (scatters ? kSize : 1)));
        for (std::size_t i = 0; i < input.size(); ++i) input[i] = static_cast<double>(i % 100);
        std::vector<double> output = input;
        Call call{kind, DType::kFloat64, ReduceOp::kPremulSum, 1, input.data(), output.data(), count};
        call.factor = rank + 0.5;
        run({own, rank, kSize}, call);
        if (kind == OpKind::kReduce && rank != 1) return;
        const auto skipped = static_cast<std::size_t>(scatters ? rank * count : 0);
        for (std::size_t i = 0; i < static_cast<std::size_t>(count); ++i) {
          const double want = static_cast<double>((i + skipped) % 100) * 4.5;
          conformance::expect(std::fabs(output[i] - want) < 1e-9, "not scaled");
        }
      });
      EXPECT_EQ(errors, all_good(kSize));
    }
  }
  Call halves{OpKind::kAllReduce, DType::kBFloat16, ReduceOp::kPremulSum};
  EXPECT_FALSE(ShmCollectives::has(halves)) << "the engine does those in float32";
}

// A root does not wait for who only reads, but for no longer than its areas last.
TEST(ShmCollectives, RunAheadOfALateRankByNoMoreThanItsAreas) {
  std::atomic<int> sent{0};
  std::atomic<bool> late_began{false};
  const auto errors = with_shared_memory(2, kUsual, [&](int rank, ShmCollectives& own) {
    for (int turn = 0; turn < 10; ++turn) {
      if (rank == 1 && turn == 0) {
        std::this_thread::sleep_for(std::chrono::milliseconds(100));
        late_began = true;
      }
      int value = rank == 0 ? turn : -1;
      run({own, rank, 2}, Call{OpKind::kBroadcast, DType::kInt32, ReduceOp::kSum, 0, nullptr, &value, 1});
      conformance::expect(value == turn, "a broadcast was overwritten");
      if (rank == 0 && !late_began) sent = turn + 1;
    }
  });
  EXPECT_EQ(errors, all_good(2));
  EXPECT_GE(sent, 1);
  EXPECT_LE(sent, 2);
}

TEST(ShmCollectives, WaitForARankInAnotherCall) {
  const auto errors = with_shared_memory(2, kUsual, [&](int rank, ShmCollectives& own) {
    float value = 1;
    Request request;
    std::optional<Error> error;
    own.start(Call{OpKind::kAllReduce, DType::kFloat32, ReduceOp::kSum, 0, nullptr, &value, 1},
              /*identity=*/static_cast<std::uint64_t>(rank), /*protocol=*/{}, request);
    for (int poll = 0; poll < 1000; ++poll)
      conformance::expect(own.test(request, error) == State::kPending, "it took what was not for it");
    conformance::expect(own.cancel(request) && request.handle == 0, "no rank touches the tensor any more");
    conformance::expect(value == 1, "the tensor was changed");
  });
  EXPECT_EQ(errors, all_good(2));
}

// Rank 1's memory cannot be read: its process is another one. Rank 0's can, and still the call ends
// nowhere.
TEST(ShmCollectives, FailWhereAMemoryCannotBeRead) {
  if (const auto why = Process::own().unsupported_reason()) GTEST_SKIP() << *why;
  std::vector<Process> processes = processes_of(2, true);
  ++processes[1].number;
  // They outlive both ranks: rank 1 may still read when rank 0 has failed.
  const std::vector<std::vector<float>> inputs(2, std::vector<float>(1 << 16));
  const auto errors = with_shared_memory(
      2, kUsual,
      [&](int rank, ShmCollectives& own) {
        const std::vector<float>& input = inputs[static_cast<std::size_t>(rank)];
        std::vector<float> output(2 << 16);
        Request request;
        std::optional<Error> error;
        own.start(Call{OpKind::kAllGather, DType::kFloat32, ReduceOp::kSum, 0, input.data(), output.data(),
                       1 << 16},
                  1, {}, request);
        const auto end =
            std::chrono::steady_clock::now() + std::chrono::milliseconds(rank == 0 ? 10'000 : 200);
        while (std::chrono::steady_clock::now() < end)
          conformance::expect(own.test(request, error) == State::kPending, "it came to an end");
        own.cancel(request);
      },
      processes);
  EXPECT_TRUE(says(errors[0], "the memory of rank 1 of the group could not be read")) << errors[0];
  EXPECT_EQ(errors[1], "");
}

// Rank 0 reads, aborts and changes its tensor before rank 1, which is late, reads it: that must not
// end well.
TEST(ShmCollectives, NeverEndWithWhatWasWrittenAfterACancel) {
  if (const auto why = Process::own().unsupported_reason()) GTEST_SKIP() << *why;
  std::promise<void> started, cancelled;
  // They outlive both ranks: freed ones that are still read are an error.
  std::vector<std::vector<float>> inputs(2, std::vector<float>(1 << 16, 1.f));
  const auto errors = with_shared_memory(
      2, kUsual,
      [&](int rank, ShmCollectives& own) {
        std::vector<float>& input = inputs[rank];
        std::vector<float> output(2 << 16);
        Request request;
        std::optional<Error> error;
        const auto tests = [&] {
          for (int i = 0; i < 100; ++i)
            conformance::expect(own.test(request, error) == State::kPending, "it came to an end");
        };
        if (rank == 0) started.get_future().wait();
        own.start(Call{OpKind::kAllGather, DType::kFloat32, ReduceOp::kSum, 0, input.data(), output.data(),
                       1 << 16},
                  1, {}, request);
        if (rank == 1) {
          conformance::expect(own.test(request, error) == State::kPending, "it came to an end alone");
          started.set_value();
          cancelled.get_future().wait();
        }
        tests();
        own.cancel(request);
        if (rank == 0) {
          input.assign(input.size(), 7.f);
          cancelled.set_value();
        }
      },
      processes_of(2, true));
  EXPECT_EQ(errors, all_good(2));
}

// Rank 0 aborts after the second step and begins another call. Rank 2 is late, and finds the second
// step's blocks where rank 0 had them; the third it never gets.
TEST(ShmCollectives, ReadWhereABlockWasBeforeItsOwnerWentOn) {
  if (const auto why = Process::own().unsupported_reason()) GTEST_SKIP() << *why;
  constexpr int kSize = 3;
  constexpr std::int64_t kBlock = 3 << 20, kHuge = std::int64_t{1} << 46;
  const std::size_t area = Segment::area_bytes(kSize, kSmallest);
  const auto memory = plain_memory(Segment::bytes(kSize, area));
  Bytes input(kSize * kBlock);
  std::vector<Bytes> outputs(kSize, Bytes(kBlock));
  std::deque<ShmCollectives> all;
  std::vector<Request> requests(kSize);
  std::optional<Error> error;
  Call call{OpKind::kScatter, DType::kUInt8, ReduceOp::kSum, 0, input.data(), nullptr, kBlock};
  for (std::size_t rank = 0; rank < kSize; ++rank) {
    all.emplace_back(Segment(memory, static_cast<int>(rank), kSize, area), processes_of(kSize, true));
    call.output = outputs[rank].data();
    all[rank].start(call, 1, {}, requests[rank]);
  }
  const auto test = [&](std::size_t rank) {
    EXPECT_EQ(all[rank].test(requests[rank], error), State::kPending);
    return all[rank].steps();
  };
  EXPECT_EQ(test(0), 1u);
  EXPECT_EQ(test(1), 1u);
  EXPECT_EQ(test(2), 2u);
  EXPECT_EQ(test(0), 2u);
  EXPECT_EQ(test(1), 3u);
  all[0].cancel(requests[0]);
  const std::vector<std::int64_t> others(kSize, kHuge);
  call.input_counts = others;
  all[0].start(call, 2, {}, requests[0]);
  EXPECT_EQ(test(0), 3u);
  EXPECT_EQ(test(2), 3u) << "rank 0 tells of another call already, but not of this step";
  EXPECT_FALSE(error);
}

TEST(ShmCollectives, CompareBlocksThatNotAllRanksKnow) {
  const std::vector<std::int64_t> two_and_one = {2, 1}, one_and_two = {1, 2};
  for (const OpKind kind : {OpKind::kAllGather, OpKind::kReduceScatter, OpKind::kAllToAll}) {
    const auto errors = with_shared_memory(2, kUsual, [&](int rank, ShmCollectives& own) {
      float input[4] = {}, output[4] = {};
      Call call{kind, DType::kFloat32, ReduceOp::kSum, 0, input, output, 2};
      call.input_counts = call.output_counts = rank == 0 ? two_and_one : one_and_two;
      Request request;
      std::optional<Error> error;
      own.start(call, 1, {}, request);
      while (own.test(request, error) == State::kPending) std::this_thread::yield();
      // In the all_to_all either rank sends the other what that expects.
      if (kind == OpKind::kAllToAll) return conformance::expect(!error, "they agree");
      conformance::expect(error && error->kind() == ErrorKind::kMismatch, "a disagreement passes");
      conformance::expect(says(error->what(), "rank " + std::to_string(1 - rank)), error->what());
      conformance::expect(own.cancel(request), "nothing is in flight");
    });
    EXPECT_EQ(errors, all_good(2)) << name_of(kind);
  }
}

// The ranks of a node are only some of a group.
TEST(ShmCollectives, CallRanksAsTheirGroupDoes) {
  const std::vector<std::int64_t> two_and_one = {2, 1}, one_and_two = {1, 2};
  const std::vector<int> ranks_of_group = {3, 7};
  const auto errors = with_shared_memory(
      2, kUsual,
      [&](int rank, ShmCollectives& own) {
        float input[4] = {}, output[4] = {};
        Call call{OpKind::kAllGather, DType::kFloat32, ReduceOp::kSum, 0, input, output, 2};
        call.output_counts = rank == 0 ? two_and_one : one_and_two;
        Request request;
        std::optional<Error> error;
        own.start(call, 1, {}, request);
        while (own.test(request, error) == State::kPending) std::this_thread::yield();
        conformance::expect(error && says(error->what(), rank == 0 ? "rank 7 of" : "rank 3 of"),
                            "another rank");
      },
      {}, ranks_of_group);
  EXPECT_EQ(errors, all_good(2));
}

// Their sums of elements are equal. What earlier calls have left in the segment is no excuse.
TEST(ShmCollectives, CompareEvenBlocksWithUnevenOnes) {
  const std::vector<std::int64_t> uneven = {1, 3};
  for (const OpKind kind : {OpKind::kAllGather, OpKind::kReduceScatter}) {
    const auto errors = with_shared_memory(2, kUsual, [&](int rank, ShmCollectives& own) {
      float input[8] = {}, output[8] = {};
      Request request;
      std::optional<Error> error;
      const auto call = [&](bool is_uneven) {
        Call next{kind, DType::kFloat32, ReduceOp::kSum, 0, input, output, 4};
        if (is_uneven) (kind == OpKind::kAllGather ? next.output_counts : next.input_counts) = uneven;
        own.start(next, 1, {}, request);
        while (own.test(request, error) == State::kPending) std::this_thread::yield();
      };
      for (int i = 0; i < 2; ++i) call(true);
      conformance::expect(!error, "uneven blocks that agree");
      call(rank == 1);
      conformance::expect(error && error->kind() == ErrorKind::kMismatch, "a disagreement passes");
      conformance::expect(says(error->what(), "4 elements for every rank"), error->what());
    });
    EXPECT_EQ(errors, all_good(2)) << name_of(kind);
  }
}

TEST(ShmCollectives, HaveTheProtocolsThatAreNamed) {
  using Names = std::vector<std::string_view>;
  const auto names = [](OpKind kind) {
    const auto found = shm_protocols(kind);
    return Names(found.begin(), found.end());
  };
  EXPECT_EQ(names(OpKind::kAllReduce), names_of(reduction_protocols()));
  for (const OpKind kind : {OpKind::kAllGather, OpKind::kGather, OpKind::kScatter, OpKind::kAllToAll})
    EXPECT_EQ(names(kind), names_of(block_protocols())) << name_of(kind);
  for (const OpKind kind : {OpKind::kReduceScatter, OpKind::kBroadcast, OpKind::kScan, OpKind::kBarrier})
    EXPECT_EQ(names(kind), Names()) << name_of(kind);
}

TEST(ShmCollectives, SayWhatHappens) {
  Call call{OpKind::kAllReduce, DType::kFloat32};
  call.count = 4;
  EXPECT_EQ(ShmCollectives::describe(call, 4, {}).steps,
            "every rank shows its vector, and reduces all; 1 step\n");
  EXPECT_EQ(ShmCollectives::describe(call, 4, "two_steps").name, "two_steps");
  call.count = 1 << 20;
  EXPECT_NE(ShmCollectives::describe(call, 4, {}).steps.find("steps"), std::string::npos);
  // What the areas do not hold goes as if nothing was asked for.
  const ExplainedProtocol large = ShmCollectives::describe(call, 4, "one_step");
  EXPECT_EQ(large.name, "two_steps");
  ASSERT_EQ(large.others.size(), 1u);
  EXPECT_EQ(large.others[0].second, "the vector is larger than the area of a rank");
  call.kind = OpKind::kBroadcast;
  EXPECT_EQ(ShmCollectives::describe(call, 4, "one_step").name, "");
  call.kind = OpKind::kAllToAll;
  EXPECT_EQ(ShmCollectives::describe(call, 4, {}).name, "in_place");
  EXPECT_EQ(ShmCollectives::describe(call, 4, "areas").name, "areas");
  call.count = 4;
  EXPECT_EQ(ShmCollectives::describe(call, 4, {}).name, "areas");
  EXPECT_EQ(ShmCollectives::describe(call, 4, "in_place").name, "in_place");
}

}  // namespace
}  // namespace altorch::shm
